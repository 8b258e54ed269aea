#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "actors/layer_shard/layer_shard.h"
#include "tests/actors/effects.h"

namespace troupe::testing {

inline constexpr std::size_t kRowBytes = 8;
inline const DeviceRef kOwn{NodeId{1}, 0}, kFirst{NodeId{2}, 0}, kSecond{NodeId{3}, 0};
inline const Address kPreviousAddress{NodeId{2}, Incarnation{20}, {ActorKind::kLayerShard, 0}};
inline const Address kReplicaAddress{NodeId{1}, Incarnation{10}, {ActorKind::kReplica, 0}};

/// A placement in which expert 0 is here, expert 1 on nodes 2 and 3, expert 2 on node 3 alone.
inline Placement placement() {
  Placement p;
  p.version = PlacementVersion{4};
  p.experts = {{1, {{0, kOwn}, {1, kFirst}, {1, kSecond}, {2, kSecond}}}};
  return p;
}

inline LayerShardConfig config(bool first = true, bool last = true) {
  LayerShardConfig c;
  c.self = {NodeId{1}, Incarnation{10}, 0};
  c.replica = {NodeId{1}, Incarnation{10}, 0};
  if (!first) c.previous = {NodeId{2}, Incarnation{20}, 0};
  if (!last) c.next = {NodeId{2}, Incarnation{20}, 16};
  c.device = kOwn;
  c.routes = std::make_shared<const ExpertRoutes>(placement());
  c.members = {
      {NodeId{1}, Incarnation{10}}, {NodeId{2}, Incarnation{20}}, {NodeId{3}, Incarnation{30}}};
  return c;
}

inline Envelope from(const Address& who, MessagePtr message) {
  return {who, config().self.address, std::move(message)};
}

inline Envelope plan(std::uint64_t step) {
  StepPlan p;
  p.body.step = StepId{step};
  p.body.sequences.resize(1);
  p.body.sequences[0].tokens = {5, 6};
  return from(kReplicaAddress, message_of(std::move(p)));
}

/// Two rows; row 0 needs expert 1 in slot 0, row 1 experts 1 and 2.
inline ExpertCut cut() {
  ExpertCut c;
  c.layer = 1;
  c.missing = {{0, 0, 1}, {1, 0, 1}, {1, 1, 2}};
  c.row_bytes = kRowBytes;
  c.rows.assign(kRowBytes, std::byte{'a'});
  c.rows.resize(2 * kRowBytes, std::byte{'b'});
  return c;
}

inline const Dispatch* dispatch_to(const LayerShard::Effects& actions, NodeId node) {
  for (const auto& send : all<Send>(actions))
    if (send.to.node == node)
      if (const auto* d = std::get_if<Dispatch>(send.message.get())) return d;
  return nullptr;
}

inline Envelope output_of(const Dispatch& d, NodeId node) {
  return from(
      {node, Incarnation{node.value * 10}, {ActorKind::kExpertGroup, 0}},
      message_of(ExpertOutput{d.call, static_cast<std::uint32_t>(d.pairs.size()),
                              Payload::of(std::make_shared<Buffer>(d.pairs.size() * kRowBytes))}));
}

/// The first message of that kind, if there is one.
template <class T>
const T* heard(const LayerShard::Effects& actions) {
  for (const auto& send : all<Send>(actions))
    if (const auto* m = std::get_if<T>(send.message.get())) return m;
  return nullptr;
}

inline Envelope refusal_of(const Dispatch& d, NodeId node) {
  return from({node, Incarnation{node.value * 10}, {ActorKind::kExpertGroup, 0}},
              message_of(NotHere{d.call, {}, "gone"}));
}

inline const TimePoint kStart{std::chrono::seconds(100)};

inline PeerDown down(std::uint32_t node) {
  return {NodeId{node}, Incarnation{node * 10}, "it is gone"};
}
inline PeerUp up(std::uint32_t node) { return {NodeId{node}, Incarnation{node * 10}}; }

/// The same routes under another version.
inline RoutesChanged routes(std::uint64_t version) {
  Placement next = placement();
  next.version = PlacementVersion{version};
  return {std::make_shared<const ExpertRoutes>(next), config().members};
}

/// The versions that the node's agent hears are settled.
inline std::vector<std::uint64_t> settled(const LayerShard::Effects& effects) {
  std::vector<std::uint64_t> versions;
  for (const auto& news : told<NodeAgentInbox, RoutesSettled>(effects))
    versions.push_back(news.version.value);
  return versions;
}

/// One turn; all invariants hold after it.
template <class Mail>
void play(LayerShard& shard, Mail&& mail, TimePoint now, LayerShard::Effects& effects) {
  turn(shard, std::forward<Mail>(mail), now, effects);
  CHECK(shard.violation() == "");
}
inline void play_wake(LayerShard& shard, TimePoint now, LayerShard::Effects& effects) {
  wake(shard, now, effects);
  CHECK(shard.violation() == "");
}

/// A shard whose step 1 waits for its experts; `asked` has the questions.
inline LayerShard waiting_shard(LayerShard::Effects& asked) {
  LayerShard shard(config());
  LayerShard::Effects begun;
  play(shard, plan(1), kStart, begun);
  CHECK(all<BeginStep>(begun).size() == 1);
  play(shard, StepCut{StepId{1}, cut()}, kStart, asked);
  return shard;
}

}  // namespace troupe::testing
