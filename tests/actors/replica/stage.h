#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "actors/replica/replica.h"
#include "tests/actors/effects.h"
#include "tests/actors/replica/fake_model.h"

namespace troupe::testing {

inline const Address kRouter{kHeadNode, Incarnation{1}, {ActorKind::kRouter, 0}};
inline const Address kSupervisor{kHeadNode, Incarnation{1}, {ActorKind::kSupervisor, 0}};
inline const Address kFirstShard{NodeId{1}, Incarnation{2}, {ActorKind::kLayerShard, 0}};
inline const Address kLastShard{NodeId{2}, Incarnation{3}, {ActorKind::kLayerShard, 16}};
inline const Address kSelf{NodeId{1}, Incarnation{2}, {ActorKind::kReplica, 0}};

inline ReplicaConfig small() {
  ReplicaConfig config;
  config.version = PlacementVersion{3};
  config.router = {kRouter.node, kRouter.incarnation};
  for (const Address& shard : {kFirstShard, kLastShard})
    config.shards.emplace_back(shard.node, shard.incarnation, shard.actor.index);
  config.blocks = 16;
  config.block_size = 4;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  config.max_model_len = 64;
  return config;
}

inline Submit request(std::uint64_t id, std::size_t prompt, std::uint32_t max_tokens) {
  Submit submit;
  submit.sequence = SequenceId{id};
  for (std::size_t i = 0; i < prompt; ++i)
    submit.prompt.push_back(static_cast<TokenId>((id * 31 + i * 7) % kVocab));
  submit.sampling.seed = id;
  submit.max_tokens = max_tokens;
  return submit;
}

/// A replica with its shards at hand; steps come back only when told to.
struct Stage {
  explicit Stage(ReplicaConfig c) : config(c), replica(c), shards(c.blocks, c.block_size) {}

  void send(const Message& message, const Address& from = kRouter) {
    Replica::Effects effects;
    turn(replica, {from, kSelf, std::make_shared<const Message>(message)}, now, effects);
    take(effects);
  }
  void wake(Duration later) {
    now += later;
    Replica::Effects effects;
    troupe::wake(replica, now, effects);
    take(effects);
  }
  void peer_down(NodeId node) {
    Replica::Effects effects;
    turn(replica, PeerDown{node, Incarnation{}, "it is gone"}, now, effects);
    take(effects);
  }
  void head_changed(std::optional<Incarnation> head) {
    Replica::Effects effects;
    turn(replica, HeadChanged{head}, now, effects);
    take(effects);
  }
  void take(const Replica::Effects& effects) {
    if (looks_always) CHECK(replica.violation() == "");
    wake_at = effects.wake();
    for (const auto& changed : all<ReportChanged>(effects)) reports.push_back(changed.report);
    for (const auto& send : all<Send>(effects)) {
      if (const auto* events = std::get_if<SequenceEvents>(send.message.get())) {
        CHECK(send.to == kRouter);
        for (const auto& event : events->events) told.push_back(event);
      } else if (const auto* canary = std::get_if<CanaryResult>(send.message.get())) {
        CHECK(send.to == kSupervisor);
        canaries.push_back(*canary);
      } else if (send.to == kLastShard && std::holds_alternative<StepPlan>(*send.message)) {
        plans.push_back(std::get<StepPlan>(*send.message).body);
      } else if (send.to == kLastShard && std::holds_alternative<StepAbort>(*send.message)) {
        aborted.push_back(std::get<StepAbort>(*send.message).step);
      }
    }
  }
  StepResult result_of(const StepPlanBody& plan) {
    StepResult result{config.id, plan.step, shards.run(plan)};
    result.digests = shards.digests();
    return result;
  }
  void run() {
    for (; !plans.empty();) {
      const StepPlanBody plan = plans.front();
      plans.erase(plans.begin());
      send(result_of(plan), kLastShard);
    }
  }
  void run_one() {
    const StepPlanBody plan = plans.at(0);
    plans.erase(plans.begin());
    send(result_of(plan), kLastShard);
  }
  bool gave_up(std::uint64_t id) const {
    return std::ranges::any_of(told, [&](const SequenceEvent& event) {
      return event.sequence.value == id && event.error.has_value();
    });
  }
  std::vector<TokenOutput> tokens_of(std::uint64_t id) const {
    std::vector<TokenOutput> tokens;
    for (const auto& event : told) {
      if (event.sequence.value != id) continue;
      if (!event.tokens.empty()) CHECK(event.index >= tokens.size());
      tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
    }
    return tokens;
  }
  const SequenceEvent& last_of(std::uint64_t id) const {
    const SequenceEvent* last = nullptr;
    for (const auto& event : told)
      if (event.sequence.value == id) last = &event;
    REQUIRE(last);
    return *last;
  }
  void check_empty() const {
    const ReplicaReport report = replica.report();
    CHECK(report.running == 0);
    CHECK(report.waiting == 0);
    CHECK(report.kv_blocks_used == 0);
  }

  ReplicaConfig config;
  Replica replica;
  FakeShards shards;
  TimePoint now{};
  std::vector<SequenceEvent> told;
  std::vector<StepPlanBody> plans;
  std::vector<StepId> aborted;
  std::vector<ReplicaReport> reports;
  std::vector<CanaryResult> canaries;
  std::optional<TimePoint> wake_at;
  bool looks_always = true;  ///< at the invariants, after each turn
};

inline Expected expected_of(const Submit& submit) {
  return testing::expected_of(submit.prompt, submit.sampling, submit.max_tokens,
                              !submit.stop_tokens.empty(), submit.prompt_logprobs);
}

}  // namespace troupe::testing
