// The progress thread of the libfabric fabric: how peers come together, and how the thread sleeps.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

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
      give_up(*peer);
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

void LibfabricFabric::give_up(Peer& peer) {
  if (peer.why.fault == LinkFault::kOwnEnd) return fail(peer, peer.why.reason);
  fail(peer, "no connection came about in time: " +
                 (peer.why.reason.empty() ? silence_of(peer) : peer.why.reason));
}

/// What was waited for all that time.
std::string LibfabricFabric::silence_of(const Peer& peer) const {
  const std::string firewall = "; a firewall has to let TCP pass between workers, at all ports";
  const std::string gate = peer.address.text();
  if (!peer.calls) return "it did not come to " + to_string(own_address()) + firewall;
  if (peer.call && peer.call->connected()) return "who listens at " + gate + " says nothing";
  if (peer.connection)
    return "it answers at " + gate + ", and not at the port that it names there" + firewall;
  return "nothing answers at " + gate + firewall;
}

void LibfabricFabric::tend_gate() {
  std::vector<Peer*> expected;
  std::optional<SocketAddress> at;
  for (const auto& [node, peer] : active_) {
    if (peer->calls || peer->phase != Peer::Phase::kWaiting) continue;
    expected.push_back(peer.get());
    // Where they find it differs on the head's machine only.
    at = !at || *at == peer->listen_at ? peer->listen_at : gate_->address();
  }
  if (!at) {
    gate_->close();
    return;
  }
  // Should the port be taken for a moment, the next round tries again.
  const auto status = gate_->open(*at);
  for (Peer* peer : expected) {
    if (!status.ok())
      peer->why = {status.error().message, LinkFault::kOwnEnd};
    else if (peer->why.fault == LinkFault::kOwnEnd)
      peer->why = {"", LinkFault::kNobody};
  }
}

void LibfabricFabric::call_gate(Peer& peer, TimePoint time) {
  peer.retry_at = time + kRetryMax;
  GateHello hello{kFabricProtocol, self(), peer.key, peer.token};
  const auto from = provider_->fixed ? std::optional(provider_->host) : std::nullopt;
  auto call = GateCall::start(from, peer.address, hello, epoll_.get());
  if (!call) {
    const bool own = call.error().code == ErrorCode::kInvalidArgument;
    peer.why = {call.error().message, own ? LinkFault::kOwnEnd : LinkFault::kNobody};
    return;
  }
  peer.call = std::move(*call);
}

void LibfabricFabric::retry(Peer& peer, const std::string& reason) {
  peer.why = {reason, LinkFault::kNobody};
  peer.call.reset();
  peer.admitted = false;
  bury(peer);
  peer.backoff = std::clamp(peer.backoff * 2, kRetryMin, kRetryMax);
  peer.retry_at = now() + peer.backoff;
}

void LibfabricFabric::on_gate_answer(Peer& peer) {
  auto reply = peer.call->go_on();
  if (!reply) {
    retry(peer, reply.error().message + " (" + peer.address.text() + ")");
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
  SocketAddress to = peer.address;
  to.set_port(port);
  const InfoPtr info = provider_->info_for(provider_->fixed ? &provider_->host : nullptr, &to);
  if (!info) return resource_exhausted("There is no memory for a connection.");
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
  const auto at = gate_->came_to(caller);
  // One door at a time: who has come to another address asks again in a moment.
  if (!at || (doorway_ && doorway_->at() != *at)) {
    gate_->answer(caller, {GateVerdict::kRefused, 0});
    return;
  }
  if (!doorway_) {
    auto doorway = Doorway::open(*provider_, *at);
    if (!doorway) {
      peer.why = {doorway.error().message, LinkFault::kNobody};
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
