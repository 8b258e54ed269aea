#pragma once

#include <cstdint>
#include <string>

#include "actors/layer_shard/expert_calls.h"
#include "actors/layer_shard/layer_shard_config.h"
#include "actors/layer_shard/step_order.h"

namespace troupe {

/// One layer range of one replica: takes step plans (and the hidden rows of the stage before), has
/// the device compute, sends rows out to the expert groups that hold their experts and collects the
/// answers, and passes the step on. Waiting for experts is a state, never a blocked thread.
///
///     Replica, previous stage ◄──► StepOrder ──► jobs on the device
///                                      │ ▲
///                               StepCut│ │all outputs are here, or StepFailed
///                                      ▼ │
///     expert groups, routes   ◄──► ExpertCalls
class LayerShard {
 public:
  using Inbox = LayerShardInbox;
  using Effects = ShardEffects;

  explicit LayerShard(LayerShardConfig config);

  void on(const StepPlan& plan, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const StepAbort& abort, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Hidden& hidden, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const ExpertOutput& output, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const ExpertProgress& progress, const Envelope& envelope, TimePoint now,
          Effects& effects);
  void on(const NotHere& refusal, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Undeliverable& lost, const Envelope& envelope, TimePoint now, Effects& effects);

  void on(StepCut cut, TimePoint now, Effects& effects);
  void on(StepFound found, TimePoint now, Effects& effects);
  void on(StepComputed computed, TimePoint now, Effects& effects);
  /// What the node was asked goes to other copies, or waits. It is asked again after PeerUp, or
  /// when routes come with a newer life of it.
  void on(PeerDown down, TimePoint now, Effects& effects);
  void on(PeerUp up, TimePoint now, Effects& effects);
  /// Another head: no step of the earlier one's time goes on.
  void on(HeadChanged changed, TimePoint now, Effects& effects);
  void on(DevicesAvoided avoided, TimePoint now, Effects& effects);
  void on(RoutesChanged changed, TimePoint now, Effects& effects);

  void on_wake(TimePoint now, Effects& effects);
  /// RoutesSettled comes last, after whatever the turn still asked.
  void end_turn(TimePoint now, Effects& effects);
  std::string violation() const;

  std::size_t steps() const { return order_.size(); }

 private:
  void distrust(const Address& peer, std::string reason, Effects& effects) const;
  void lose_part(const Undeliverable& lost, Effects& effects);
  void lose_rank(NodeId node, Effects& effects);
  void try_resume(StepId step, Effects& effects);
  void fail(StepId step, Error error, Effects& effects);
  void fail(FailedSteps failed, Effects& effects);

  Ref<NodeAgentInbox> agent() const { return {self_.address.node, self_.address.incarnation}; }

  Ref<LayerShardInbox> self_;
  std::vector<Ref<LayerShardInbox>> ranks_;
  StepOrder order_;
  ExpertCalls calls_;
};

}  // namespace troupe
