#include "actors/layer_shard/layer_shard.h"

#include <cstring>

#include "runtime/limits.h"

namespace troupe {

void LayerShard::on(const Envelope& envelope, TimePoint now, LayerShardActions& actions) {
  const Message& message = *envelope.message;
  if (const auto* plan = std::get_if<StepPlan>(&message)) {
    if (plan->replica == config_.replica_id && envelope.from == config_.replica)
      on_plan(envelope.message, now, actions);
  } else if (const auto* hidden = std::get_if<Hidden>(&message)) {
    if (hidden->replica == config_.replica_id && envelope.from == config_.previous)
      on_hidden(*hidden, now, actions);
  } else if (const auto* output = std::get_if<ExpertOutput>(&message)) {
    on_output(envelope, *output, actions);
  } else if (const auto* not_here = std::get_if<NotHere>(&message)) {
    on_refusal(not_here->call, not_here->reason, now, actions);
  } else if (const auto* abort = std::get_if<StepAbort>(&message)) {
    if (abort->replica == config_.replica_id && envelope.from == config_.replica)
      on_abort(abort->step, actions);
  } else if (const auto* lost = std::get_if<Undeliverable>(&message)) {
    if (lost->to.actor.kind == ActorKind::kExpertGroup)
      on_refusal(lost->reference, lost->error.message, now, actions);
    else if (lost->to.actor.kind == ActorKind::kLayerShard)
      fail(StepId{lost->reference}, lost->error, actions);
  }
  plan_wake(actions);
}

void LayerShard::on_wake(TimePoint now, LayerShardActions& actions) {
  std::vector<StepId> late;
  for (const auto& [id, call] : calls_)
    if (call.deadline <= now) late.push_back(call.step);
  for (const StepId id : late)
    fail(id, deadline_exceeded("An expert group did not answer in time."), actions);
  late.clear();
  for (const auto& [id, step] : steps_)
    if (step.deadline <= now && !step.aborted) late.push_back(id);
  for (const StepId id : late) fail(id, deadline_exceeded("A step did not end in time."), actions);
  plan_wake(actions);
}

void LayerShard::on_plan(const MessagePtr& message, TimePoint now, LayerShardActions& actions) {
  const StepId id = std::get<StepPlan>(*message).body.step;
  Step& step = steps_[id];
  if (step.plan) return;  // a duplicate
  step.plan = message;
  step.deadline = now + limits::kStepDeadline;
  try_begin(id, step, actions);
}

/// The hidden rows of an aborted step may come later than the abort, by another lane.
void LayerShard::on_abort(StepId step, LayerShardActions& actions) {
  aborted_.insert(step);
  if (aborted_.size() > limits::kStepsInFlightMax) aborted_.erase(aborted_.begin());
  drop(step, actions);
}

void LayerShard::on_hidden(const Hidden& hidden, TimePoint now, LayerShardActions& actions) {
  if (aborted_.contains(hidden.step)) return;
  if (!steps_.contains(hidden.step) && steps_.size() >= limits::kStepsInFlightMax) return;
  Step& step = steps_[hidden.step];
  if (step.hidden) return;
  if (!step.plan) step.deadline = now + limits::kStepDeadline;
  step.hidden = hidden.payload;
  try_begin(hidden.step, step, actions);
}

void LayerShard::try_begin(StepId, Step& step, LayerShardActions& actions) {
  if (!step.plan || step.begun || (config_.previous && !step.hidden)) return;
  step.begun = step.computing = true;
  actions.begins.push_back({step.plan, step.hidden.value_or(Payload{})});
}

void LayerShard::on_cut(StepId id, ExpertCut cut, TimePoint now, LayerShardActions& actions) {
  const auto it = steps_.find(id);
  if (it == steps_.end() || it->second.aborted) return;
  Step& step = it->second;
  step.excluded.clear();
  step.arrivals.clear();
  step.cut = std::move(cut);
  const std::vector<MissingOutput> missing = step.cut.missing;
  ask(id, step, missing, now, actions);
  plan_wake(actions);
}

/// Sends rows to one expert group each; a row that several experts of a group need travels once.
void LayerShard::ask(StepId id, Step& step, const std::vector<MissingOutput>& outputs,
                     TimePoint now, LayerShardActions& actions) {
  std::map<DeviceRef, std::vector<MissingOutput>> by_device;
  for (const auto& output : outputs) {
    const auto& copies = config_.routes->copies(step.cut.layer, output.expert);
    const auto device =
        choose_copy(copies, config_.device, id.value + output.expert, step.excluded);
    if (!device) {
      std::string where;
      for (const auto& copy : copies) where += (where.empty() ? "" : ", ") + to_string(copy);
      return fail(id,
                  unavailable("Expert " + std::to_string(output.expert) + " of layer " +
                              std::to_string(step.cut.layer) + " cannot be reached (it is on " +
                              (where.empty() ? "no device" : where) + ")."),
                  actions);
    }
    by_device[*device].push_back(output);
  }
  for (auto& [device, wanted] : by_device) {
    const auto member = config_.members.find(device.node);
    if (member == config_.members.end())
      return fail(id, internal_error(to_string(device) + " is no member of the placement."),
                  actions);
    Dispatch dispatch;
    dispatch.call = next_call_++;
    dispatch.version = config_.routes->version();
    dispatch.layer = step.cut.layer;
    std::vector<std::int32_t> rows;
    for (const auto& output : wanted) {
      if (rows.empty() || rows.back() != output.row) rows.push_back(output.row);
      dispatch.pairs.push_back({static_cast<std::uint32_t>(rows.size() - 1), output.expert});
    }
    dispatch.rows = static_cast<std::uint32_t>(rows.size());
    auto buffer = std::make_shared<Buffer>(rows.size() * step.cut.row_bytes);
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memcpy(buffer->data() + i * step.cut.row_bytes,
                  step.cut.rows.bytes.data() + rows[i] * step.cut.row_bytes, step.cut.row_bytes);
    dispatch.payload = Payload::of(std::move(buffer));
    step.calls.insert(dispatch.call);
    calls_[dispatch.call] = {id, device, now + limits::kExpertDeadline, step.cut.layer, wanted};
    actions.send({device.node, member->second, {ActorKind::kExpertGroup, device.index}},
                 std::move(dispatch));
  }
}

void LayerShard::on_output(const Envelope& envelope, const ExpertOutput& output,
                           LayerShardActions& actions) {
  const auto it = calls_.find(output.call);
  if (it == calls_.end()) return;  // answered by another copy, or the step is gone
  Call& call = it->second;
  const StepId id = call.step;
  Step& step = steps_.at(id);
  if (envelope.from.node != call.device.node || output.pairs != call.outputs.size() ||
      output.payload.bytes.size() != call.outputs.size() * step.cut.row_bytes)
    return fail(id, corrupt("An expert group's answer does not match the question."), actions);
  step.arrivals.push_back({std::move(call.outputs), output.payload});
  step.calls.erase(output.call);
  calls_.erase(it);
  try_resume(id, step, actions);
}

void LayerShard::on_refusal(std::uint64_t number, const std::string&, TimePoint now,
                            LayerShardActions& actions) {
  const auto it = calls_.find(number);
  if (it == calls_.end()) return;
  const Call call = std::move(it->second);
  calls_.erase(it);
  Step& step = steps_.at(call.step);
  step.calls.erase(number);
  step.excluded.insert(call.device);
  ask(call.step, step, call.outputs, now, actions);
}

void LayerShard::on_peer_down(NodeId node, TimePoint now, LayerShardActions& actions) {
  std::vector<std::uint64_t> lost;
  for (const auto& [number, call] : calls_)
    if (call.device.node == node) lost.push_back(number);
  for (const std::uint64_t number : lost) on_refusal(number, "the node is lost", now, actions);
  plan_wake(actions);
}

void LayerShard::on_peer_up(NodeId, TimePoint, LayerShardActions& actions) { plan_wake(actions); }

void LayerShard::on_avoid(std::set<DeviceRef>, TimePoint, LayerShardActions& actions) {
  plan_wake(actions);
}

std::uint64_t LayerShard::on_routes(std::shared_ptr<const ExpertRoutes> routes,
                                    std::map<NodeId, Incarnation> members, TimePoint,
                                    LayerShardActions& actions) {
  config_.routes = std::move(routes);
  config_.members = std::move(members);
  actions.settled.push_back(++routes_number_);
  plan_wake(actions);
  return routes_number_;
}

void LayerShard::try_resume(StepId id, Step& step, LayerShardActions& actions) {
  if (step.computing || !step.calls.empty()) return;
  step.computing = true;
  actions.resumes.push_back({id, std::move(step.arrivals)});
  step.arrivals.clear();
  step.cut = {};
}

void LayerShard::on_computed(StepId id, ComputeOutcome outcome, TimePoint,
                             LayerShardActions& actions) {
  const auto it = steps_.find(id);
  if (it == steps_.end()) return;
  Step& step = it->second;
  step.computing = false;
  if (step.aborted) {
    drop(id, actions);
  } else if (outcome.error) {
    fail(id, std::move(*outcome.error), actions);
  } else if (!outcome.done) {
    try_resume(id, step, actions);
  } else {
    const auto rows = static_cast<std::uint32_t>([&] {
      std::size_t n = 0;
      for (const auto& s : std::get<StepPlan>(*step.plan).body.sequences) n += s.tokens.size();
      return n;
    }());
    if (config_.next)
      actions.send(*config_.next, Hidden{config_.replica_id, id, rows, std::move(outcome.hidden)});
    else
      actions.send(config_.replica,
                   StepResult{config_.replica_id, id, std::move(outcome.sequences)});
    drop(id, actions);
  }
  plan_wake(actions);
}

void LayerShard::fail(StepId id, Error error, LayerShardActions& actions) {
  const auto it = steps_.find(id);
  if (it == steps_.end() || it->second.aborted) return;
  actions.send(config_.replica, StepFailed{config_.replica_id, id, std::move(error)});
  drop(id, actions);
}

/// Forgets a step; while a job has its buffers, that waits for the job.
void LayerShard::drop(StepId id, LayerShardActions& actions) {
  const auto it = steps_.find(id);
  if (it == steps_.end()) return;
  for (const std::uint64_t call : it->second.calls) calls_.erase(call);
  it->second.calls.clear();
  if (it->second.computing) {
    it->second.aborted = true;
    return;
  }
  if (it->second.begun) actions.releases.push_back(id);
  steps_.erase(it);
}

void LayerShard::plan_wake(LayerShardActions& actions) const {
  for (const auto& [id, call] : calls_) actions.wake_at(call.deadline);
  for (const auto& [id, step] : steps_)
    if (!step.aborted) actions.wake_at(step.deadline);
}

}  // namespace troupe
