#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "actors/node_agent/node_agent.h"

namespace troupe {

using namespace std::chrono_literals;
using State = NodeAgent::State;

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline NodeAgentOptions options() {
  NodeAgentOptions o;
  o.version = "0.1.0";
  o.host = "h";
  o.pid = 9;
  o.head = "head:6379";
  o.numerics = {Numerics::kReference, Numerics::kAvx2};
  o.devices = {{"cpu", 1 << 20, 1}};
  o.fabric_address = "bulk";
  return o;
}

inline Greeting good_greeting() {
  return {kProtocol, "c1", "0.1.0", "/models/m", "abc", Numerics::kAvx2};
}

inline constexpr Incarnation kHeadLife{50};
inline constexpr NodeId kSelf{2};
inline constexpr Incarnation kLife{51};

inline FabricToken token(int n) {
  FabricToken t{};
  t[0] = static_cast<std::byte>(n);
  return t;
}

inline Load load_of(std::uint64_t version, std::vector<Peer> peers) {
  Load load;
  load.placement.version = PlacementVersion{version};
  load.placement.replicas = {{0, kSelf, 10}, {1, NodeId{3}, 10}};
  load.placement.shards = {{0, 0, 0, 0, 1, {kSelf, 0}}, {1, 0, 0, 0, 1, {NodeId{3}, 0}}};
  load.placement.experts = {{1, {{0, {kSelf, 0}}, {1, {NodeId{3}, 0}}, {2, {kSelf, 0}}}}};
  load.peers = std::move(peers);
  return load;
}

/// A NodeAgent and the head it talks to.
struct Worker {
  NodeAgent agent;
  TimePoint now = TimePoint{} + 1h;
  NodeAgentActions last;
  NodeProgress progress;

  explicit Worker(NodeAgentOptions o = options()) : agent(std::move(o)) {
    progress.devices.resize(1);
  }

  template <class Call>
  void call(Call&& c) {
    last = {};
    c(agent, last);
  }
  void start() {
    call([&](auto& a, auto& out) { a.start(now, out); });
  }
  void up() {
    call([&](auto& a, auto& out) { a.session_up(now, out); });
  }
  void down(bool foreign = false) {
    call([&](auto& a, auto& out) { a.session_down("reset", foreign, now, out); });
  }
  void inspected(const Result<std::string>& hash) {
    call([&](auto& a, auto& out) { a.checkpoint_inspected(hash, now, out); });
  }
  void loaded(std::uint64_t version) {
    call([&](auto& a, auto& out) { a.loaded(PlacementVersion{version}, now, out); });
  }
  void peer_up(std::uint32_t node, std::uint64_t life) {
    call([&](auto& a, auto& out) { a.peer_up(NodeId{node}, Incarnation{life}, now, out); });
  }
  void peer_down(std::uint32_t node, std::uint64_t life) {
    call([&](auto& a, auto& out) {
      a.peer_down(NodeId{node}, Incarnation{life}, "reset", now, out);
    });
  }
  void load_failed(std::uint64_t version, Error error) {
    call([&](auto& a, auto& out) {
      a.load_failed(PlacementVersion{version}, std::move(error), now, out);
    });
  }
  void settled(std::uint64_t version) {
    call([&](auto& a, auto& out) { a.settled(PlacementVersion{version}, now, out); });
  }
  void wait(Duration d) {
    now += d;
    call([&](auto& a, auto& out) { a.on_wake(now, progress, out); });
  }
  /// Wakes as often as it asks to.
  void live(Duration d, bool answer) {
    const TimePoint end = now + d;
    while (now < end && agent.state() == State::kMember) {
      wait(std::min<Duration>(50ms, end - now));
      const auto* renew = sent<Renew>();
      if (renew && answer) from_head(Renewed{renew->sequence});
    }
  }
  template <class T>
  void from_head(T message, Incarnation head = kHeadLife, Incarnation self = kLife) {
    const Address from{kHeadNode, head, {ActorKind::kSupervisor, 0}};
    const Address to{kSelf, self, {ActorKind::kNodeAgent, 0}};
    call([&](auto& a, auto& out) { a.on({from, to, message_of(std::move(message))}, now, out); });
  }
  template <class T>
  const T* sent() const {
    for (const auto& send : last.sends) {
      if (const auto* m = std::get_if<T>(send.message.get())) return m;
    }
    return nullptr;
  }
  void become_member() {
    start();
    up();
    from_head(good_greeting());
    inspected(std::string("abc"));
    from_head(Welcome{kSelf, kLife, 1200});
    REQUIRE(agent.state() == State::kMember);
  }
};

}  // namespace troupe
