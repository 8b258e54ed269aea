#include "actors/layer_shard/step_order.h"

#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

/// Remembers the newest only.
void remember(FlatSet<StepId>& steps, StepId step) {
  steps.insert(step);
  if (steps.size() > limits::kStepsInFlightMax) steps.erase(*steps.begin());
}

}  // namespace

// --- Steps come ---------------------------------------------------------------------------------

void StepOrder::on(const StepPlan& plan, const Envelope& envelope, TimePoint now,
                   ShardEffects& effects) {
  if (plan.replica != place_.replica_id || envelope.from != place_.replica.address) return;
  const auto known = steps_.find(plan.body.step);
  if (known != steps_.end() && known->second.plan) return;  // a duplicate
  // Also of a step that has been given up: later plans build on its tables.
  Result<MessagePtr> whole = tables_.complete(plan);
  if (aborted_.contains(plan.body.step)) return;
  if (!whole.ok()) {
    tell_failed(plan.body.step, whole.error(), effects);
    return drop(plan.body.step, effects);
  }
  Step& step = steps_[plan.body.step];
  step.plan = std::move(*whole);
  step.deadline = now + limits::kStepTimeMax;
  step.say_at = now + limits::kProgressEvery;
  try_begin(step, effects);
}

void StepOrder::on(const Hidden& hidden, const Envelope& envelope, TimePoint now,
                   ShardEffects& effects) {
  if (hidden.replica != place_.replica_id || !place_.previous ||
      envelope.from != place_.previous->address)
    return;
  if (aborted_.contains(hidden.step)) return;
  if (!steps_.contains(hidden.step) && steps_.size() >= limits::kStepsInFlightMax) return;
  Step& step = steps_[hidden.step];
  if (step.hidden) return;
  if (!step.plan) step.deadline = now + limits::kStepDeadline;
  step.hidden = hidden.payload;
  step.digests = hidden.digests;
  try_begin(step, effects);
}

/// The hidden rows of an aborted step may come later than the abort, by another lane.
bool StepOrder::on(const StepAbort& abort, const Envelope& envelope, ShardEffects& effects) {
  const bool from_previous = place_.previous && envelope.from == place_.previous->address;
  if (abort.replica != place_.replica_id ||
      (envelope.from != place_.replica.address && !from_previous))
    return false;
  remember(aborted_, abort.step);
  if (passed_on_.erase(abort.step)) effects.send(*place_.next, StepAbort(abort));
  return true;
}

void StepOrder::try_begin(Step& step, ShardEffects& effects) {
  if (!step.plan || step.begun || (place_.previous && !step.hidden)) return;
  step.begun = step.computing = true;
  effects.add(BeginStep{step.plan, step.hidden.value_or(Payload{})});
}

// --- Steps go on and end ------------------------------------------------------------------------

StepOrder::Computed StepOrder::on(StepComputed computed, ShardEffects& effects) {
  const auto it = steps_.find(computed.step);
  if (it == steps_.end()) return Computed::kUnknown;
  Step& step = it->second;
  step.computing = false;
  ComputeOutcome& outcome = computed.outcome;
  if (!step.aborted && !outcome.error && !outcome.done) return Computed::kWaits;
  if (!step.aborted) {
    if (outcome.error)
      tell_failed(computed.step, std::move(*outcome.error), effects);
    else
      pass_on(computed.step, step, std::move(outcome), effects);
  }
  drop(computed.step, effects);
  return Computed::kEnded;
}

void StepOrder::pass_on(StepId id, Step& step, ComputeOutcome outcome, ShardEffects& effects) {
  std::vector<std::uint64_t>& digests = step.digests;
  digests.insert(digests.end(), outcome.digests.begin(), outcome.digests.end());
  if (!place_.next && place_.rank.rank > 0) return;
  if (!place_.next)
    return effects.send(place_.replica,
                        StepResult{place_.replica_id, id, std::move(outcome.sequences), digests});
  std::size_t rows = 0;
  for (const auto& s : std::get<StepPlan>(*step.plan).body.sequences) rows += s.tokens.size();
  effects.send(*place_.next, Hidden{place_.replica_id, id, static_cast<std::uint32_t>(rows),
                                    std::move(outcome.hidden), digests});
  remember(passed_on_, id);
}

void StepOrder::resume(StepId step, ExpertCut cut, ShardEffects& effects) {
  steps_[step].computing = true;
  effects.add(ResumeStep{step, std::move(cut)});
}

void StepOrder::lose_passed_on(NodeId node, ShardEffects& effects) {
  if (!place_.next || place_.next->address.node != node) return;
  for (const StepId step : std::exchange(passed_on_, {}))
    tell_failed(step, unavailable(to_string(node) + " cannot be reached any more."), effects);
}

/// The step was dropped in the turn that passed it on, so nothing but this ends the Replica's wait
/// for it before its deadline.
void StepOrder::lose_passed_on(StepId step, const Error& error, ShardEffects& effects) {
  passed_on_.erase(step);
  tell_failed(step, error, effects);
}

std::vector<StepId> StepOrder::lose_replica(NodeId node, ShardEffects& effects) {
  std::vector<StepId> lost;
  if (place_.replica.address.node != node) return lost;
  for (const auto& [id, step] : steps_) {
    remember(aborted_, id);
    if (!step.aborted) lost.push_back(id);
  }
  for (const StepId step : std::exchange(passed_on_, {}))
    effects.send(*place_.next, StepAbort{place_.replica_id, step});
  return lost;
}

void StepOrder::lose_previous(NodeId node, ShardEffects& effects) {
  if (!place_.previous || place_.previous->address.node != node) return;
  std::vector<StepId> unplanned;
  for (const auto& [id, step] : steps_)
    if (!step.plan) unplanned.push_back(id);
  for (const StepId step : unplanned) drop(step, effects);
}

void StepOrder::fail(StepId step, Error error, ShardEffects& effects) {
  if (!lives(step)) return;
  tell_failed(step, std::move(error), effects);
  drop(step, effects);
}

void StepOrder::tell_failed(StepId step, Error error, ShardEffects& effects) const {
  effects.send(place_.replica, StepFailed{place_.replica_id, step, std::move(error)});
}

void StepOrder::drop(StepId id, ShardEffects& effects) {
  const auto it = steps_.find(id);
  if (it == steps_.end()) {
    if (!place_.rank.alone()) effects.add(ReleaseStep{id});  // other ranks may have begun it
    return;
  }
  if (it->second.computing) {
    if (!std::exchange(it->second.aborted, true)) effects.add(GiveUpStep{id});
    return;
  }
  if (it->second.begun || !place_.rank.alone()) effects.add(ReleaseStep{id});
  steps_.erase(it);
}

// --- Questions ----------------------------------------------------------------------------------

std::vector<StepId> StepOrder::late(TimePoint now) const {
  std::vector<StepId> late;
  for (const auto& [id, step] : steps_)
    if (step.deadline <= now && !step.aborted) late.push_back(id);
  return late;
}

/// One that waits for experts goes on as long as ExpertCalls does not give it up.
void StepOrder::say_progress(TimePoint now, ShardEffects& effects) {
  for (auto& [id, step] : steps_) {
    if (!step.begun || step.aborted || now < step.say_at) continue;
    step.say_at = now + limits::kProgressEvery;
    const StepProgress progress{place_.replica_id, id};
    if (step.computing)
      effects.add(SayProgress{place_.replica, progress});
    else
      effects.send(place_.replica, progress);
  }
}

void StepOrder::arrange_wake(ShardEffects& effects) const {
  for (const auto& [id, step] : steps_) {
    if (step.aborted) continue;
    effects.wake_at(step.deadline);
    if (step.begun) effects.wake_at(step.say_at);
  }
}

bool StepOrder::lives(StepId step) const {
  const auto it = steps_.find(step);
  return it != steps_.end() && !it->second.aborted;
}

bool StepOrder::waits(StepId step) const {
  const auto it = steps_.find(step);
  return it != steps_.end() && it->second.begun && !it->second.computing;
}

std::vector<StepId> StepOrder::all() const {
  std::vector<StepId> all;
  for (const auto& [id, step] : steps_)
    if (!step.aborted) all.push_back(id);
  return all;
}

std::vector<StepId> StepOrder::waiting() const {
  std::vector<StepId> waiting;
  for (const auto& [id, step] : steps_)
    if (step.begun && !step.computing) waiting.push_back(id);
  return waiting;
}

std::string StepOrder::violation() const {
  for (const auto& [id, step] : steps_) {
    const std::string name = "step " + std::to_string(id.value);
    if (!step.plan && !step.hidden) return name + " has neither a plan nor hidden rows";
    if (step.hidden && !place_.previous) return name + " has hidden rows on the first stage";
    if (step.begun && (!step.plan || (place_.previous && !step.hidden)))
      return name + " began without its plan or its hidden rows";
    if (!step.begun && step.plan && (!place_.previous || step.hidden))
      return name + " has all that it needs and did not begin";
    if (step.computing && !step.begun) return name + " is computed but did not begin";
    if (step.aborted && !step.computing) return name + " was given up and no job has its buffers";
  }
  if (aborted_.size() > limits::kStepsInFlightMax || passed_on_.size() > limits::kStepsInFlightMax)
    return "more steps are remembered than can be in flight";
  if (!place_.next && !passed_on_.empty()) return "the last stage passed hidden rows on";
  return {};
}

}  // namespace troupe
