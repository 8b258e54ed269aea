#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/node_agent/messages.h"
#include "actors/node_agent/node_agent.h"
#include "tests/actors/effects.h"

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
  o.numerics = {Numerics::kReference, Numerics::kBf16};
  o.devices = {{"cpu", 1 << 20, 1}};
  return o;
}

inline Greeting good_greeting() {
  return {kProtocol, "c1", "0.1.0", "/models/m", "abc", Numerics::kBf16};
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
  // The others have a copy too, so that routes lead there.
  for (const Peer& peer : peers)
    if (peer.id != NodeId{3} && peer.id != kSelf)
      load.placement.experts[0].slots.push_back({0, {peer.id, 0}});
  const bool alone = std::none_of(peers.begin(), peers.end(),
                                  [](const Peer& peer) { return peer.id == NodeId{3}; });
  if (alone) {
    load.placement.replicas.pop_back();
    load.placement.shards.pop_back();
    load.placement.experts[0].slots[1].device.node = kSelf;
  }
  load.peers = std::move(peers);
  return load;
}

/// What an agent wants in one turn.
struct Wants {
  AgentEffects effects;

  template <class E>
  std::vector<E> all() const {
    return testing::all<E>(effects);
  }
  template <class E>
  bool has() const {
    return !all<E>().empty();
  }
  /// The first of its kind, if there is one.
  template <class E>
  std::optional<E> first() const {
    const auto found = all<E>();
    return found.empty() ? std::nullopt : std::optional<E>(found.front());
  }
  template <class E>
  std::vector<Peer> peers() const {
    std::vector<Peer> found;
    for (const auto& effect : all<E>()) found.push_back(effect.peer);
    return found;
  }
  template <class E>
  std::vector<NodeId> nodes() const {
    std::vector<NodeId> found;
    for (const auto& effect : all<E>()) found.push_back(effect.node);
    return found;
  }
  /// The envelopes of messages of that kind.
  template <class T>
  std::vector<Envelope> envelopes() const {
    std::vector<Envelope> found;
    for (const auto& send : all<SendAs>())
      if (std::holds_alternative<T>(*send.envelope.message)) found.push_back(send.envelope);
    return found;
  }
  std::vector<std::string> log() const {
    std::vector<std::string> lines;
    for (const auto& line : all<LogLine>()) lines.push_back(line.text);
    return lines;
  }
  VersionWorkPtr load() const {
    const auto found = first<LoadVersion>();
    return found ? found->work : nullptr;
  }
  std::optional<PlacementVersion> drop() const {
    const auto found = first<DropVersion>();
    return found ? std::optional(found->version) : std::nullopt;
  }
  std::optional<PlacementVersion> activate() const {
    const auto found = first<ActivateVersion>();
    return found ? std::optional(found->version) : std::nullopt;
  }
  std::optional<PlacementVersion> retire() const {
    const auto found = first<RetireVersion>();
    return found ? std::optional(found->version) : std::nullopt;
  }
  /// Where an effect of that kind comes in the order; -1: nowhere.
  template <class E>
  int position() const {
    for (std::size_t i = 0; i < effects.list().size(); ++i)
      if (std::holds_alternative<E>(effects.list()[i])) return static_cast<int>(i);
    return -1;
  }
};

/// A NodeAgent and the head it talks to.
struct AgentUnderTest {
  NodeAgent agent;
  TimePoint now = TimePoint{} + 1h;
  Wants last;
  NodeProgress progress;

  explicit AgentUnderTest(NodeAgentOptions o = options()) : agent(std::move(o)) {
    progress.devices.resize(1);
  }

  /// Everything that happens to the agent ends its turn, and leaves its invariants whole.
  template <class Call>
  void call(Call&& c) {
    last = {};
    c(agent, last.effects);
    agent.end_turn(now, last.effects);
    CHECK(agent.violation() == "");
  }
  void start() { wait(Duration::zero()); }
  void up() {
    call([&](auto& a, auto& out) { a.on(HeadUp{}, now, out); });
  }
  void down(bool foreign = false) {
    call([&](auto& a, auto& out) { a.on(HeadDown{"reset", foreign}, now, out); });
  }
  void inspected(const Result<std::string>& hash) { inspected(hash, agent.model_path()); }
  void inspected(const Result<std::string>& hash, const std::string& folder) {
    CheckpointInspected found{folder, Error{}};
    if (hash.ok())
      found.checkpoint = InspectedCheckpoint{*hash, nullptr, folder};
    else
      found.checkpoint = hash.error();
    call([&](auto& a, auto& out) { a.on(found, now, out); });
  }
  void leave(const std::string& reason) {
    call([&](auto& a, auto& out) { a.on(LeaveCluster{reason}, now, out); });
  }
  void loaded(std::uint64_t version) {
    call([&](auto& a, auto& out) { a.loaded(PlacementVersion{version}, now, out); });
  }
  void peer_up(std::uint32_t node, std::uint64_t life) {
    call([&](auto& a, auto& out) { a.on(PeerUp{NodeId{node}, Incarnation{life}}, now, out); });
  }
  void peer_down(std::uint32_t node, std::uint64_t life) {
    call([&](auto& a, auto& out) {
      a.on(PeerDown{NodeId{node}, Incarnation{life}, "reset"}, now, out);
    });
  }
  void peer_corrupt(std::uint32_t node, std::uint64_t life) {
    call([&](auto& a, auto& out) {
      a.on(PeerCorrupt{NodeId{node}, Incarnation{life}, "odd bytes"}, now, out);
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
      const auto renew = sent<Renew>();
      if (renew && answer) from_head(Renewed{renew->sequence});
    }
  }
  template <class T>
  void hears(const T& message, const Address& from, const Address& to) {
    const Envelope envelope{from, to, message_of(T(message))};
    call([&](auto& a, auto& out) { a.on(message, envelope, now, out); });
  }
  template <class T>
  void from_head(const T& message, Incarnation head = kHeadLife, Incarnation self = kLife) {
    hears(message, {kHeadNode, head, {ActorKind::kSupervisor, 0}},
          {kSelf, self, {ActorKind::kNodeAgent, 0}});
  }
  /// Something came from that peer now.
  void signs_of_life(std::vector<std::pair<std::uint32_t, std::uint64_t>> peers) {
    progress.traffic.clear();
    for (const auto& [node, life] : peers)
      progress.traffic.push_back({NodeId{node}, Incarnation{life}, {}, now});
  }
  /// The first message of that kind that was sent in the last turn.
  template <class T>
  std::optional<T> sent() const {
    const auto found = last.envelopes<T>();
    if (found.empty()) return std::nullopt;
    return std::get<T>(*found.front().message);
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

inline const Peer kOne{NodeId{1}, Incarnation{61}, "b1", token(1)};
inline const Peer kThree{NodeId{3}, Incarnation{63}, "b3", token(3)};

inline Peer with_token(Peer peer, int n) {
  peer.token = token(n);
  return peer;
}

/// A member that serves version 1 with both peers.
struct ServingAgent : AgentUnderTest {
  ServingAgent() {
    become_member();
    from_head(load_of(1, {kOne, kThree}));
    peer_up(1, 61);
    peer_up(3, 63);
    loaded(1);
    from_head(Activate{PlacementVersion{1}});
    settled(1);
    from_head(Retire{PlacementVersion{1}});
    REQUIRE(agent.active() == PlacementVersion{1});
  }
};

}  // namespace troupe
