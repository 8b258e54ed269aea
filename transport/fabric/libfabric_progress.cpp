// The progress thread of the libfabric fabric: completions, events and frames.
#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "transport/fabric/libfabric.h"

namespace troupe::transport {
namespace {

/// After something happened the thread looks for more for this long before it sleeps: an answer
/// from a quick peer is not delayed by being woken, and an idle fabric costs nothing. Longer is
/// worse where threads share cores: who spins is not scheduled first once there is something to do
/// (8-byte round trips on a machine with four times as many threads as cores: 0 us 41, 10 us 48, 50
/// us 119).
constexpr auto kSpin = std::chrono::microseconds(10);
constexpr std::size_t kCompletionsAtOnce = 32;

}  // namespace

void LibfabricFabric::run() {
  TimePoint last_busy = now();
  while (!stop_) {
    // What is posted or closed in one pass may complete without a new edge on a descriptor, so
    // only a pass in which nothing happened may end in sleep.
    bool busy = run_commands();
    if (waiting_ != 0 || gate_->listener() >= 0 || doorway_) run_timers(now());
    busy = drain() || busy;
    graveyard_.clear();
    const TimePoint time = now();
    if (busy) last_busy = time;
    if (busy || time - last_busy < kSpin) continue;
    sleep();
  }
  doorway_.reset();
  gate_->close();
  for (auto& [node, peer] : active_) {
    peer->phase = Peer::Phase::kDown;
    peer->call.reset();
    bury(*peer);
    std::lock_guard lock(peer->mutex);
    peer->outbox.clear();
  }
  active_.clear();
  while (read_completions()) {
  }
  graveyard_.clear();
}

bool LibfabricFabric::run_commands() {
  bool busy = false;
  if (waker_->room.exchange(false)) {
    busy = true;
    const auto peers = active_;
    for (const auto& [node, peer] : peers) pump(*peer);
  }
  if (!commands_waiting_.load(std::memory_order_relaxed)) return busy;
  std::vector<Command> commands;
  {
    std::lock_guard lock(commands_mutex_);
    commands.swap(commands_);
    commands_waiting_ = false;
  }
  for (auto& command : commands) {
    switch (command.kind) {
      case Command::Kind::kStart: start_peer(command.peer); break;
      case Command::Kind::kFlush: flush(*command.peer); break;
      case Command::Kind::kAsk:
        if (command.peer->connection) command.peer->connection->ask();
        pump(*command.peer);
        break;
      case Command::Kind::kForget: fail(*command.peer, "forgotten"); break;
      case Command::Kind::kStop: stop_ = true; break;
    }
  }
  return true;
}

void LibfabricFabric::start_peer(const std::shared_ptr<Peer>& peer) {
  if (peer->forgotten) return;
  const TimePoint time = now();
  peer->deadline = time + (peer->calls ? options_.connect_deadline : options_.expect_deadline);
  if (peer->why.fault == LinkFault::kOwnEnd) peer->deadline = time;
  peer->retry_at = time;
  active_[peer->key.node] = peer;
  ++waiting_;
}

void LibfabricFabric::flush(Peer& peer) {
  std::vector<std::shared_ptr<OutFrame>> frames;
  {
    std::lock_guard lock(peer.mutex);
    frames.swap(peer.outbox);
    peer.flush_asked = false;
  }
  if (!peer.connection) return;
  for (auto& frame : frames) peer.connection->enqueue(std::move(frame));
  pump(peer);
}

bool LibfabricFabric::drain() {
  bool any = false;
  for (;;) {
    bool some = read_completions();
    some = read_events() || some;
    if (!some) return any;
    any = true;
  }
}

bool LibfabricFabric::read_completions() {
  std::array<fi_cq_msg_entry, kCompletionsAtOnce> entries;
  const ssize_t n = fi_cq_read(provider_->cq.get(), entries.data(), entries.size());
  if (n > 0) {
    for (ssize_t i = 0; i < n; ++i) {
      const auto& entry = entries[static_cast<std::size_t>(i)];
      on_completion(*static_cast<const Connection::Op*>(entry.op_context), entry.len);
    }
    return true;
  }
  if (n != -FI_EAVAIL) return false;
  fi_cq_err_entry error{};
  if (fi_cq_readerr(provider_->cq.get(), &error, 0) <= 0) return false;
  const auto* op = static_cast<const Connection::Op*>(error.op_context);
  if (op && !op->connection->closed()) {
    // A segment larger than a posted buffer is garbage too.
    if (error.err == FI_ETRUNC) counters_.garbage.fetch_add(1);
    on_broken(op->connection->peer(),
              std::string("the connection broke: ") + libfabric().strerror(error.err));
  }
  return true;
}

bool LibfabricFabric::read_events() {
  std::array<std::byte, 512> event;
  std::uint32_t kind = 0;
  const ssize_t n = fi_eq_read(provider_->eq.get(), &kind, event.data(), event.size(), 0);
  if (n == -FI_EAVAIL) {
    fi_eq_err_entry error{};
    if (fi_eq_readerr(provider_->eq.get(), &error, 0) <= 0) return false;
    if (Peer* peer = find(error.fid)) on_broken(*peer, libfabric().strerror(error.err));
    return true;
  }
  if (n < static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) return n > 0;
  fi_eq_cm_entry entry;
  std::memcpy(&entry, event.data(), sizeof(entry));
  if (kind == FI_CONNECTED) {
    if (Peer* peer = find(entry.fid)) on_connected(*peer);
  } else if (kind == FI_SHUTDOWN) {
    // What came before the end is still delivered.
    while (read_completions()) {
    }
    if (Peer* peer = find(entry.fid)) on_broken(*peer, "the peer closed the connection");
  }
  return true;
}

Peer* LibfabricFabric::find(const fid* endpoint) {
  for (const auto& [node, peer] : active_) {
    if (peer->connection && peer->connection->id() == endpoint) return peer.get();
  }
  return nullptr;
}

void LibfabricFabric::on_completion(const Connection::Op& op, std::size_t bytes) {
  Connection& connection = *op.connection;
  if (connection.closed()) return;
  Peer& peer = connection.peer();
  if (!op.receive) {
    connection.on_sent(op);
    pump(peer);
    return;
  }
  // The first segment can be read before the event that says the connection is there.
  if (peer.phase == Peer::Phase::kWaiting) on_connected(peer);
  peer.heard = now();
  auto frame = connection.on_received(op, bytes, budget_);
  if (!frame) {
    if (frame.error().code == ErrorCode::kCorrupt) counters_.garbage.fetch_add(1);
    fail(peer, frame.error().message);
    return;
  }
  if (*frame) deliver(peer, std::move(**frame));
  pump(peer);
}

void LibfabricFabric::on_connected(Peer& peer) {
  if (peer.phase != Peer::Phase::kWaiting) return;
  assert(waiting_ > 0);
  --waiting_;
  peer.admitted = false;
  peer.call.reset();
  peer.heard = now();
  peer.phase = Peer::Phase::kUp;
  counters_.peers_up.fetch_add(1);
  if (!peer.forgotten) events_.on_peer_up(peer.key);
}

void LibfabricFabric::on_broken(Peer& peer, const std::string& reason) {
  if (peer.phase == Peer::Phase::kWaiting) {
    retry(peer, reason);
  } else {
    fail(peer, reason);
  }
}

void LibfabricFabric::deliver(Peer& peer, Frame frame) {
  if (peer.forgotten) return;
  counters_.frames_received.fetch_add(1, std::memory_order_relaxed);
  counters_.bytes_received.fetch_add(frame.bytes(), std::memory_order_relaxed);
  events_.on_frame(peer.key, std::move(frame));
}

void LibfabricFabric::pump(Peer& peer) {
  if (!peer.connection || peer.phase != Peer::Phase::kUp) return;
  if (auto status = peer.connection->pump(budget_->full()); !status.ok()) {
    fail(peer, status.error().message);
  }
}

void LibfabricFabric::bury(Peer& peer) {
  if (!peer.connection) return;
  peer.connection->close();
  graveyard_.push_back(std::move(peer.connection));
}

void LibfabricFabric::fail(Peer& peer, const std::string& reason) {
  const auto phase = peer.phase.exchange(Peer::Phase::kDown);
  if (phase == Peer::Phase::kUp) counters_.peers_up.fetch_sub(1);
  std::vector<std::shared_ptr<OutFrame>> unsent;
  {
    std::lock_guard lock(peer.mutex);
    unsent.swap(peer.outbox);
  }
  peer.call.reset();
  peer.admitted = false;
  bury(peer);
  const auto active = active_.find(peer.key.node);
  // A peer that was forgotten before it started is not there.
  if (active == active_.end() || active->second.get() != &peer) return;
  const std::shared_ptr<Peer> keep = active->second;
  active_.erase(active);
  if (phase == Peer::Phase::kWaiting) --waiting_;
  const LinkFault fault = phase == Peer::Phase::kUp ? LinkFault::kBroke : peer.why.fault;
  if (!peer.forgotten) events_.on_peer_down(peer.key, {reason, fault});
}

}  // namespace troupe::transport
