#include "actors/layer_shard/layer_shard.h"

#include <algorithm>
#include <utility>

namespace troupe {

LayerShard::LayerShard(LayerShardConfig config)
    : self_(config.self),
      ranks_(std::move(config.ranks)),
      order_({config.replica_id, config.replica, config.previous, config.next, config.rank}),
      calls_({config.device, std::move(config.routes), std::move(config.members)}) {}

void LayerShard::on(const StepPlan& plan, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  order_.on(plan, envelope, now, effects);
}

void LayerShard::on(const Hidden& hidden, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  order_.on(hidden, envelope, now, effects);
}

void LayerShard::on(const StepAbort& abort, const Envelope& envelope, TimePoint, Effects& effects) {
  if (!order_.on(abort, envelope, effects)) return;
  calls_.forget(abort.step);
  order_.drop(abort.step, effects);
}

void LayerShard::on(const ExpertOutput& output, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  const auto answered = calls_.on_output(output, envelope.from, now, effects);
  if (!answered.fits)
    distrust(envelope.from, "an expert group's answer does not match the question", effects);
  if (answered.step) try_resume(*answered.step, effects);
}

void LayerShard::on(const ExpertProgress& progress, const Envelope& envelope, TimePoint now,
                    Effects&) {
  calls_.on_progress(progress.call, envelope.from, now);
}

void LayerShard::on(const NotHere& refusal, const Envelope&, TimePoint now, Effects& effects) {
  calls_.on_refusal(refusal.call, now, effects);
}

void LayerShard::on(const Undeliverable& lost, const Envelope&, TimePoint now, Effects& effects) {
  if (lost.to.actor.kind == ActorKind::kExpertGroup)
    calls_.on_refusal(lost.reference, now, effects);
  else if (lost.kind == Message(Hidden{}).index() || lost.kind == Message(StepResult{}).index())
    order_.lose_passed_on(StepId{lost.reference}, lost.error, effects);
  else if (lost.to.actor.kind == ActorKind::kRank)
    lose_part(lost, effects);
}

void LayerShard::on(StepCut cut, TimePoint now, Effects& effects) {
  if (order_.lives(cut.step)) calls_.begin(cut.step, std::move(cut.cut), now, effects);
}

void LayerShard::on(StepFound found, TimePoint, Effects&) { calls_.forget(found.step); }

void LayerShard::on(StepComputed computed, TimePoint, Effects& effects) {
  const StepId step = computed.step;
  if (const auto& error = computed.outcome.error; error && error->code == ErrorCode::kCorrupt)
    if (const auto previous = order_.previous()) distrust(*previous, error->message, effects);
  switch (order_.on(std::move(computed), effects)) {
    case StepOrder::Computed::kWaits:
      // Without its cut it would go on as if it lacked nothing.
      if (!calls_.knows(step))
        return fail(step, internal_error("A step's experts were never asked for."), effects);
      return try_resume(step, effects);
    case StepOrder::Computed::kEnded:
      return calls_.forget(step);
    case StepOrder::Computed::kUnknown:
      return;
  }
}

void LayerShard::on(PeerDown down, TimePoint now, Effects& effects) {
  fail(calls_.on_peer_down(down.node, now, effects), effects);
  order_.lose_passed_on(down.node, effects);
  order_.lose_previous(down.node, effects);
  for (const StepId step : order_.lose_replica(down.node, effects))
    fail(step, unavailable(to_string(down.node) + " cannot be reached any more."), effects);
  lose_rank(down.node, effects);
}

/// Its rank waits for what was in it, and so do the others for that rank.
void LayerShard::lose_part(const Undeliverable& lost, Effects& effects) {
  effects.add(LoseRank{lost.error.message});
  if (lost.reference != 0) fail(StepId{lost.reference}, lost.error, effects);
}

/// No step can go on without all ranks.
void LayerShard::lose_rank(NodeId node, Effects& effects) {
  const bool has_rank = std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
    return rank.address.node == node && rank.address.node != self_.address.node;
  });
  if (!has_rank) return;
  const Error lost = unavailable("A tensor-parallel rank on " + to_string(node) + " is lost.");
  effects.add(LoseRank{lost.message});
  for (const StepId step : order_.all()) fail(step, lost, effects);
}

void LayerShard::on(HeadChanged, TimePoint, Effects& effects) {
  for (const StepId step : order_.all()) fail(step, unavailable("The head has changed."), effects);
}

void LayerShard::on(PeerUp up, TimePoint now, Effects& effects) {
  calls_.on_peer_up(up.node, now, effects);
}

void LayerShard::on(DevicesAvoided avoided, TimePoint, Effects&) {
  calls_.on_avoided(std::move(avoided.devices));
}

void LayerShard::on(RoutesChanged changed, TimePoint now, Effects& effects) {
  if (!ranks_.empty()) effects.add(UseRoutes{changed.routes});
  fail(calls_.on_routes(std::move(changed), now, effects), effects);
}

void LayerShard::on_wake(TimePoint now, Effects& effects) {
  fail(calls_.end_late_calls(now, effects), effects);
  fail(calls_.end_stalled(now), effects);
  for (const StepId step : order_.late(now))
    fail(step, deadline_exceeded("A step did not end in time."), effects);
  calls_.end_pauses(now, effects);
  order_.say_progress(now, effects);
}

/// The bytes that its node sends are not to be trusted: the connection ends, and a new one begins.
void LayerShard::distrust(const Address& peer, std::string reason, Effects& effects) const {
  if (peer.node != self_.address.node)
    effects.send(agent(), PeerCorrupt{peer.node, peer.incarnation, std::move(reason)});
}

void LayerShard::try_resume(StepId step, Effects& effects) {
  if (order_.waits(step) && calls_.complete(step)) order_.resume(step, calls_.take(step), effects);
}

void LayerShard::fail(StepId step, Error error, Effects& effects) {
  calls_.forget(step);
  order_.fail(step, std::move(error), effects);
}

void LayerShard::fail(FailedSteps failed, Effects& effects) {
  for (auto& [step, error] : failed) fail(step, std::move(error), effects);
}

void LayerShard::end_turn(TimePoint, Effects& effects) {
  for (const PlacementVersion version : calls_.take_settled())
    effects.send(agent(), RoutesSettled{self_.address.actor.index, version});
  calls_.arrange_wake(effects);
  order_.arrange_wake(effects);
}

std::string LayerShard::violation() const {
  if (auto found = order_.violation(); !found.empty()) return found;
  if (auto found = calls_.violation(); !found.empty()) return found;
  for (const StepId step : calls_.steps())
    if (!order_.lives(step))
      return "experts are asked for step " + std::to_string(step.value) + ", which has ended";
  for (const StepId step : order_.waiting())
    if (calls_.complete(step))
      return "step " + std::to_string(step.value) + " has all outputs and does not go on";
  return {};
}

}  // namespace troupe
