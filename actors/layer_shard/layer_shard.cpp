#include "actors/layer_shard/layer_shard.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

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
    on_refusal(not_here->call, now, actions);
  } else if (const auto* abort = std::get_if<StepAbort>(&message)) {
    if (abort->replica == config_.replica_id && envelope.from == config_.replica)
      on_abort(abort->step, actions);
  } else if (const auto* lost = std::get_if<Undeliverable>(&message)) {
    if (lost->to.actor.kind == ActorKind::kExpertGroup)
      on_refusal(lost->reference, now, actions);
    else if (lost->to.actor.kind == ActorKind::kLayerShard)
      fail(StepId{lost->reference}, lost->error, actions);
  }
  close_turn(actions);
}

void LayerShard::on_wake(TimePoint now, LayerShardActions& actions) {
  std::vector<std::uint64_t> late_calls;
  for (const auto& [number, call] : calls_)
    if (call.deadline <= now) late_calls.push_back(number);
  for (const std::uint64_t number : late_calls) on_late_call(number, now, actions);
  std::vector<StepId> late;
  for (const auto& [id, step] : steps_)
    if (step.deadline <= now && !step.aborted) late.push_back(id);
  for (const StepId id : late) fail(id, why_late(steps_.at(id)), actions);
  for (auto& [id, step] : steps_)
    if (step.ask_at && *step.ask_at <= now) ask_again(id, step, now, actions);
  close_turn(actions);
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
  passed_on_.erase(step);
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

// --- Experts elsewhere --------------------------------------------------------------------------

void LayerShard::on_cut(StepId id, ExpertCut cut, TimePoint now, LayerShardActions& actions) {
  const auto it = steps_.find(id);
  if (it == steps_.end() || it->second.aborted) return;
  Step& step = it->second;
  step.refused.clear();
  step.arrivals.clear();
  step.pauses = 0;
  step.cut = std::move(cut);
  ask(id, step, {step.cut.missing, {}}, now, actions);
  close_turn(actions);
}

bool LayerShard::reachable(NodeId node) const {
  return config_.members.contains(node) && !down_.contains(node);
}

std::set<DeviceRef> LayerShard::excluded(const Step& step) const {
  std::set<DeviceRef> excluded = step.refused;
  for (const auto& device : config_.routes->devices())
    if (!reachable(device.node)) excluded.insert(device);
  return excluded;
}

/// Shares outputs out among the copies of their experts; parks those that nobody can be asked for.
void LayerShard::ask(StepId id, Step& step, Wanted wanted, TimePoint now,
                     LayerShardActions& actions) {
  const std::set<DeviceRef> excluded = this->excluded(step);
  const CopyView view{config_.device, excluded, avoided_, load_};
  std::map<DeviceRef, Wanted> by_device;
  Wanted homeless{{}, wanted.lost_with};
  for (const auto& output : wanted.outputs) {
    const auto& copies = config_.routes->copies(step.cut.layer, output.expert);
    const auto turn = id.value + static_cast<std::uint64_t>(output.expert);
    if (const auto device = choose_copy(copies, turn, view)) {
      by_device[*device].outputs.push_back(output);
      ++load_[*device];
    } else {
      homeless.outputs.push_back(output);
    }
  }
  for (auto& [device, share] : by_device) {
    share.lost_with = wanted.lost_with;
    ask_device(id, step, device, std::move(share), now, actions);
  }
  if (!homeless.outputs.empty()) park(step, std::move(homeless), now);
}

/// Sends rows to one expert group; a row that several of its experts need travels once.
void LayerShard::ask_device(StepId id, Step& step, const DeviceRef& device, Wanted wanted,
                            TimePoint now, LayerShardActions& actions) {
  Dispatch dispatch;
  dispatch.call = next_call_++;
  dispatch.version = config_.routes->version();
  dispatch.layer = step.cut.layer;
  std::vector<std::int32_t> rows;
  for (const auto& output : wanted.outputs) {
    if (rows.empty() || rows.back() != output.row) rows.push_back(output.row);
    dispatch.pairs.push_back({static_cast<std::uint32_t>(rows.size() - 1), output.expert});
  }
  dispatch.rows = static_cast<std::uint32_t>(rows.size());
  auto buffer = std::make_shared<Buffer>(rows.size() * step.cut.row_bytes);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(buffer->data() + i * step.cut.row_bytes,
                step.cut.rows.bytes.data() + static_cast<std::size_t>(rows[i]) * step.cut.row_bytes,
                step.cut.row_bytes);
  dispatch.payload = Payload::of(std::move(buffer));
  const Incarnation incarnation = config_.members.at(device.node);
  step.calls.insert(dispatch.call);
  calls_[dispatch.call] = {
      id, device, incarnation, now + limits::kExpertDeadline, routes_number_, std::move(wanted)};
  actions.send({device.node, incarnation, {ActorKind::kExpertGroup, device.index}},
               std::move(dispatch));
}

void LayerShard::park(Step& step, Wanted wanted, TimePoint now) {
  auto& parked = step.parked.outputs;
  parked.insert(parked.end(), wanted.outputs.begin(), wanted.outputs.end());
  if (wanted.lost_with) step.parked.lost_with = wanted.lost_with;
  // Who cannot be reached is waited for; who refused is asked again, but not in a circle.
  if (step.refused.empty() || step.ask_at) return;
  Duration pause = kAskAgainMin;
  for (std::uint32_t i = 0; i < step.pauses && pause < kAskAgainMax; ++i) pause *= 2;
  ++step.pauses;
  step.ask_at = now + std::min(pause, kAskAgainMax);
}

void LayerShard::ask_again(StepId id, Step& step, TimePoint now, LayerShardActions& actions) {
  step.ask_at.reset();
  step.refused.clear();
  Wanted wanted = std::exchange(step.parked, {});
  if (wanted.outputs.empty()) return;
  std::sort(wanted.outputs.begin(), wanted.outputs.end(), [](const auto& a, const auto& b) {
    return std::tie(a.row, a.slot) < std::tie(b.row, b.slot);
  });
  ask(id, step, std::move(wanted), now, actions);
}

void LayerShard::ask_all_again(TimePoint now, LayerShardActions& actions) {
  for (auto& [id, step] : steps_)
    if (!step.parked.outputs.empty()) ask_again(id, step, now, actions);
}

LayerShard::Call LayerShard::end_call(Calls::iterator it) {
  Call call = std::move(it->second);
  steps_.at(call.step).calls.erase(it->first);
  calls_.erase(it);
  const auto load = load_.find(call.device);
  load->second -= call.wanted.outputs.size();
  if (load->second == 0) load_.erase(load);
  return call;
}

void LayerShard::on_output(const Envelope& envelope, const ExpertOutput& output,
                           LayerShardActions& actions) {
  const auto it = calls_.find(output.call);
  if (it == calls_.end()) return;  // answered by another copy, or the step is gone
  const StepId id = it->second.step;
  Step& step = steps_.at(id);
  const std::size_t wanted = it->second.wanted.outputs.size();
  if (envelope.from.node != it->second.device.node || output.pairs != wanted ||
      output.payload.bytes.size() != wanted * step.cut.row_bytes)
    return fail(id, corrupt("An expert group's answer does not match the question."), actions);
  step.arrivals.push_back({end_call(it).wanted.outputs, output.payload});
  try_resume(id, step, actions);
}

void LayerShard::on_refusal(std::uint64_t number, TimePoint now, LayerShardActions& actions) {
  const auto it = calls_.find(number);
  if (it == calls_.end()) return;
  Call call = end_call(it);
  Step& step = steps_.at(call.step);
  step.refused.insert(call.device);
  ask(call.step, step, std::move(call.wanted), now, actions);
}

/// Its node died, or cannot be reached, with the rows.
void LayerShard::on_lost_call(std::uint64_t number, TimePoint now, LayerShardActions& actions) {
  const auto it = calls_.find(number);
  if (it == calls_.end()) return;
  Call call = end_call(it);
  const std::pair life{call.device.node, call.incarnation};
  // With the same one again only the connection was lost.
  if (call.wanted.lost_with && call.wanted.lost_with != life)
    return fail(call.step,
                unavailable("Rows of a step were lost with two nodes in a row, the last of them " +
                            to_string(call.device.node) + ", so that no third one is asked."),
                actions);
  call.wanted.lost_with = life;
  ask(call.step, steps_.at(call.step), std::move(call.wanted), now, actions);
}

/// Silence: another copy is asked if every output has one.
void LayerShard::on_late_call(std::uint64_t number, TimePoint now, LayerShardActions& actions) {
  const auto it = calls_.find(number);
  if (it == calls_.end()) return;
  Call call = end_call(it);
  Step& step = steps_.at(call.step);
  step.refused.insert(call.device);
  const std::set<DeviceRef> excluded = this->excluded(step);
  const CopyView view{config_.device, excluded, avoided_, load_};
  for (const auto& output : call.wanted.outputs)
    if (!choose_copy(config_.routes->copies(step.cut.layer, output.expert), 0, view))
      return fail(call.step,
                  deadline_exceeded("The experts on " + to_string(call.device) +
                                    " did not answer in time."),
                  actions);
  ask(call.step, step, std::move(call.wanted), now, actions);
}

// --- Members and routes change ------------------------------------------------------------------

void LayerShard::on_peer_down(NodeId node, TimePoint now, LayerShardActions& actions) {
  const auto member = config_.members.find(node);
  down_[node] = member == config_.members.end() ? Incarnation{} : member->second;
  std::vector<std::uint64_t> lost;
  for (const auto& [number, call] : calls_)
    if (call.device.node == node) lost.push_back(number);
  for (const std::uint64_t number : lost) on_lost_call(number, now, actions);
  if (config_.next && config_.next->node == node)
    // Hidden rows may have been on their way. The Replica knows which of these steps are done.
    for (const StepId id : std::exchange(passed_on_, {}))
      actions.send(config_.replica,
                   StepFailed{config_.replica_id, id,
                              unavailable(to_string(node) + " cannot be reached any more.")});
  close_turn(actions);
}

void LayerShard::on_peer_up(NodeId node, TimePoint now, LayerShardActions& actions) {
  if (down_.erase(node) > 0) ask_all_again(now, actions);
  close_turn(actions);
}

void LayerShard::on_avoid(std::set<DeviceRef> devices, TimePoint, LayerShardActions& actions) {
  avoided_ = std::move(devices);
  close_turn(actions);
}

std::uint64_t LayerShard::on_routes(std::shared_ptr<const ExpertRoutes> routes,
                                    std::map<NodeId, Incarnation> members, TimePoint now,
                                    LayerShardActions& actions) {
  const std::uint64_t number = ++routes_number_;
  config_.routes = std::move(routes);
  config_.members = std::move(members);
  unsettled_.insert(number);
  std::erase_if(down_, [&](const auto& down) {
    const auto member = config_.members.find(down.first);
    return member != config_.members.end() && member->second > down.second;
  });
  // A node that left may still answer; an earlier life of one that is here will not.
  std::vector<std::uint64_t> lost;
  for (const auto& [call_number, call] : calls_) {
    const auto member = config_.members.find(call.device.node);
    if (member != config_.members.end() && member->second != call.incarnation)
      lost.push_back(call_number);
  }
  for (const std::uint64_t call_number : lost) on_lost_call(call_number, now, actions);
  ask_all_again(now, actions);
  close_turn(actions);
  return number;
}

// --- Steps go on and end ------------------------------------------------------------------------

void LayerShard::try_resume(StepId id, Step& step, LayerShardActions& actions) {
  if (step.computing || !step.calls.empty() || !step.parked.outputs.empty()) return;
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
    if (config_.next) {
      actions.send(*config_.next, Hidden{config_.replica_id, id, rows, std::move(outcome.hidden)});
      passed_on_.insert(id);
      if (passed_on_.size() > limits::kStepsInFlightMax) passed_on_.erase(passed_on_.begin());
    } else {
      actions.send(config_.replica,
                   StepResult{config_.replica_id, id, std::move(outcome.sequences)});
    }
    drop(id, actions);
  }
  close_turn(actions);
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
  Step& step = it->second;
  while (!step.calls.empty()) end_call(calls_.find(*step.calls.begin()));
  step.parked = {};
  step.ask_at.reset();
  if (step.computing) {
    step.aborted = true;
    return;
  }
  if (step.begun) actions.releases.push_back(id);
  steps_.erase(it);
}

Error LayerShard::why_late(const Step& step) const {
  if (step.parked.outputs.empty()) return deadline_exceeded("A step did not end in time.");
  const std::int32_t expert = step.parked.outputs.front().expert;
  std::string where;
  for (const auto& copy : config_.routes->copies(step.cut.layer, expert))
    where += (where.empty() ? "" : ", ") + to_string(copy);
  return unavailable("Expert " + std::to_string(expert) + " of layer " +
                     std::to_string(step.cut.layer) + " cannot be reached (it is on " +
                     (where.empty() ? "no device" : where) + ").");
}

void LayerShard::close_turn(LayerShardActions& actions) {
  if (!unsettled_.empty()) {
    std::uint64_t oldest = routes_number_;
    for (const auto& [number, call] : calls_) oldest = std::min(oldest, call.routes);
    while (!unsettled_.empty() && *unsettled_.begin() <= oldest) {
      actions.settled.push_back(*unsettled_.begin());
      unsettled_.erase(unsettled_.begin());
    }
  }
  for (const auto& [number, call] : calls_) actions.wake_at(call.deadline);
  for (const auto& [id, step] : steps_) {
    if (!step.aborted) actions.wake_at(step.deadline);
    if (step.ask_at) actions.wake_at(*step.ask_at);
  }
}

}  // namespace troupe
