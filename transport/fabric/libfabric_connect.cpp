// The progress thread of the libfabric fabric: how peers come together, and how the thread sleeps.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "transport/fabric/libfabric.h"

namespace troupe::transport {
namespace {

/// A gate that does not admit yet is asked again after this long, doubled up to the maximum: the
/// other side usually hears from the control lane a moment later.
constexpr Duration kRetryMin = std::chrono::milliseconds(1);
constexpr Duration kRetryMax = std::chrono::milliseconds(50);
/// A peer that passed the gate has this long to knock at the provider's door.
constexpr auto kKnockDeadline = std::chrono::milliseconds(1000);

}  // namespace

void LibfabricFabric::run_timers(TimePoint time) {
  const auto peers = active_;
  bool door_needed = false;
  for (const auto& [node, peer] : peers) {
    if (peer->phase != Peer::Phase::kWaiting) continue;
    if (peer->deadline <= time) {
      fail(*peer, "no connection came about in time: " + peer->last_reason);
      continue;
    }
    if (peer->admitted && peer->admitted_until <= time && !peer->connection) peer->admitted = false;
    door_needed = door_needed || peer->admitted;
    if (peer->calls && !peer->call && !peer->connection && peer->retry_at <= time) {
      call_gate(*peer, time);
    }
  }
  if (!door_needed) doorway_.reset();
  gate_->hang_up_late(time);
  tend_gate();
}

void LibfabricFabric::tend_gate() {
  const bool expecting = std::any_of(active_.begin(), active_.end(), [](const auto& entry) {
    return !entry.second->calls && entry.second->phase == Peer::Phase::kWaiting;
  });
  if (!expecting) {
    gate_->close();
    return;
  }
  // Should the port be taken for a moment, the next round tries again.
  if (auto status = gate_->open(); !status.ok()) {
    for (const auto& [node, peer] : active_) {
      if (!peer->calls) peer->last_reason = status.error().message;
    }
  }
}

void LibfabricFabric::call_gate(Peer& peer, TimePoint time) {
  peer.retry_at = time + kRetryMax;
  GateHello hello{kFabricProtocol, self(), peer.key, peer.token};
  auto call = GateCall::start(provider_->host, peer.address, hello, epoll_.get());
  if (!call) {
    peer.last_reason = call.error().message;
    return;
  }
  peer.call = std::move(*call);
}

void LibfabricFabric::retry(Peer& peer, const std::string& reason) {
  peer.last_reason = reason;
  peer.call.reset();
  peer.admitted = false;
  bury(peer);
  peer.backoff = std::clamp(peer.backoff * 2, kRetryMin, kRetryMax);
  peer.retry_at = now() + peer.backoff;
}

void LibfabricFabric::on_gate_answer(Peer& peer) {
  auto reply = peer.call->go_on();
  if (!reply) {
    retry(peer, reply.error().message);
    return;
  }
  if (!*reply) return;
  switch ((*reply)->verdict) {
    case GateVerdict::kRefused:
      retry(peer, "it refused this node's token or incarnation");
      return;
    case GateVerdict::kOtherProtocol:
      fail(peer, "it speaks another version of the bulk protocol; run the same release everywhere");
      return;
    case GateVerdict::kAdmitted: break;
  }
  peer.call.reset();
  if (auto status = dial(peer, (*reply)->port); !status.ok()) retry(peer, status.error().message);
}

Status LibfabricFabric::dial(Peer& peer, std::uint16_t port) {
  InfoPtr info(libfabric().dupinfo(provider_->info.get()));
  if (!info) return resource_exhausted("There is no memory for a connection.");
  SocketAddress to = peer.address;
  to.set_port(port);
  std::free(info->dest_addr);
  info->dest_addr = std::malloc(to.length);
  if (!info->dest_addr) return resource_exhausted("There is no memory for a connection.");
  std::memcpy(info->dest_addr, to.get(), to.length);
  info->dest_addrlen = to.length;
  auto connection = Connection::make(*provider_, peer, info.get());
  if (!connection) return connection.error();
  peer.connection = std::move(*connection);
  return peer.connection->connect(to, DoorPass{self().node, peer.token});
}

void LibfabricFabric::on_hello(int caller, const GateHello& hello) {
  if (hello.version != kFabricProtocol) {
    gate_->answer(caller, {GateVerdict::kOtherProtocol, 0});
    return;
  }
  const auto known = active_.find(hello.from.node);
  if (hello.to != self() || known == active_.end() || known->second->key != hello.from ||
      known->second->calls || known->second->phase != Peer::Phase::kWaiting ||
      !same_token(known->second->token, hello.token)) {
    gate_->answer(caller, {GateVerdict::kRefused, 0});
    return;
  }
  Peer& peer = *known->second;
  if (!doorway_) {
    auto doorway = Doorway::open(*provider_);
    if (!doorway) {
      peer.last_reason = doorway.error().message;
      gate_->answer(caller, {GateVerdict::kRefused, 0});
      return;
    }
    doorway_ = std::move(*doorway);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.fd = doorway_->wait_fd();
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, doorway_->wait_fd(), &event);
  }
  peer.admitted = true;
  peer.admitted_until = now() + kKnockDeadline;
  gate_->answer(caller, {GateVerdict::kAdmitted, doorway_->port()});
}

void LibfabricFabric::on_request(Doorway::Request request) {
  const auto pass = parse_door_pass(request.data);
  const auto known = pass.ok() ? active_.find(pass->from) : active_.end();
  if (known == active_.end() || !known->second->admitted || known->second->connection ||
      !same_token(known->second->token, pass->token)) {
    counters_.strangers.fetch_add(1);
    doorway_->refuse(std::move(request));
    return;
  }
  Peer& peer = *known->second;
  auto connection = Connection::make(*provider_, peer, request.info.get());
  if (!connection) {
    doorway_->refuse(std::move(request));
    retry(peer, connection.error().message);
    return;
  }
  peer.connection = std::move(*connection);
  if (auto status = peer.connection->accept(); !status.ok()) {
    doorway_->refuse(std::move(request));
    retry(peer, status.error().message);
  }
}

int LibfabricFabric::sleep_ms(TimePoint time) const {
  if (waiting_ == 0 && !gate_->next_deadline()) return -1;
  TimePoint next = TimePoint::max();
  for (const auto& [node, peer] : active_) {
    if (peer->phase != Peer::Phase::kWaiting) continue;
    next = std::min(next, peer->deadline);
    if (peer->calls && !peer->call && !peer->connection) next = std::min(next, peer->retry_at);
    if (peer->admitted) next = std::min(next, peer->admitted_until);
  }
  if (const auto late = gate_->next_deadline()) next = std::min(next, *late);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - time).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void LibfabricFabric::sleep() {
  waker_->asleep = true;
  // A command that comes after this look finds the thread asleep and wakes it.
  if (commands_waiting_ || waker_->room) {
    waker_->asleep = false;
    return;
  }
  std::array<fid*, 2> queues = {&provider_->eq->fid, &provider_->cq->fid};
  if (fi_trywait(provider_->fabric.get(), queues.data(), static_cast<int>(queues.size())) != 0) {
    waker_->asleep = false;
    return;
  }
  std::array<epoll_event, 64> events;
  const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                           sleep_ms(now()));
  waker_->asleep = false;
  for (int i = 0; i < n; ++i) on_descriptor(events[static_cast<std::size_t>(i)].data.fd);
}

void LibfabricFabric::on_descriptor(int fd) {
  if (fd == waker_->event.get()) {
    std::uint64_t count = 0;
    (void)!::read(fd, &count, sizeof(count));
    return;
  }
  if (fd == provider_->cq_fd || fd == provider_->eq_fd) return;  // the next pass reads them
  if (fd == gate_->listener()) {
    gate_->accept_callers(now());
    return;
  }
  if (doorway_ && fd == doorway_->wait_fd()) {
    while (doorway_) {
      auto request = doorway_->next();
      if (!request) break;
      on_request(std::move(*request));
    }
    return;
  }
  if (gate_->owns(fd)) {
    if (auto hello = gate_->read(fd)) on_hello(fd, *hello);
    return;
  }
  for (const auto& [node, peer] : active_) {
    if (peer->call && peer->call->fd() == fd) {
      on_gate_answer(*peer);
      return;
    }
  }
}

}  // namespace troupe::transport
