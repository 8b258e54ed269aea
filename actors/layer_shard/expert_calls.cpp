#include "actors/layer_shard/expert_calls.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "runtime/limits.h"

namespace troupe {

ExpertCalls::ExpertCalls(Options options) : options_(std::move(options)) { number_devices(); }

/// After whatever changes routes, members or their state.
void ExpertCalls::number_devices() {
  const ExpertRoutes& routes = *options_.routes;
  const std::size_t count = routes.devices().size();
  devices_.self = routes.number_of(options_.device);
  devices_.unreachable.resize(count);
  devices_.avoided.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const DeviceRef& device = routes.devices()[i];
    devices_.unreachable[i] = !reachable(device.node);
    devices_.avoided[i] = avoided_.contains(device);
  }
  devices_.load.assign(count, 0);
  for (const auto& [number, call] : calls_)
    if (const auto device = routes.number_of(call.device)) devices_.load[*device] += call.outputs;
  devices_.shares.resize(count);
}

CopyView ExpertCalls::view_for(const Waiting& waiting) {
  devices_.excluded = devices_.unreachable;
  for (const auto& device : waiting.refused)
    if (const auto number = options_.routes->number_of(device)) devices_.excluded[*number] = 1;
  return {devices_.self, devices_.excluded, devices_.avoided, devices_.load};
}

// --- Questions ----------------------------------------------------------------------------------

void ExpertCalls::begin(StepId step, ExpertCut cut, TimePoint now, ShardEffects& effects) {
  assert(!knows(step));
  Waiting& waiting = waiting_[step];
  waiting.cut = std::move(cut);
  waiting.lacks = waiting.cut.missing.size();
  waiting.heard = now;
  want_parked(waiting);
  ask(step, {}, now, effects);
}

const MissingOutput* ExpertCalls::Waiting::first_parked() const {
  for (const MissingOutput& output : cut.missing)
    if (output.call == 0) return &output;
  return nullptr;
}

void ExpertCalls::want_parked(Waiting& waiting) {
  wanted_.clear();
  for (MissingOutput& output : waiting.cut.missing)
    if (output.call == 0) wanted_.push_back(&output);
}

bool ExpertCalls::reachable(NodeId node) const {
  return options_.members.contains(node) && !down_.contains(node);
}

/// Shares what is wanted out among the copies of its experts; what nobody can be asked for stays
/// parked.
void ExpertCalls::ask(StepId step, const std::optional<NodeLife>& lost_with, TimePoint now,
                      ShardEffects& effects) {
  Waiting& waiting = waiting_.find(step)->second;
  const CopyView view = view_for(waiting);
  bool homeless = false;
  for (MissingOutput* output : wanted_) {
    const auto copies = options_.routes->copies(waiting.cut.layer, output->expert);
    const auto turn = step.value + static_cast<std::uint64_t>(output->expert);
    if (const auto device = choose_copy(copies, turn, view)) {
      devices_.shares[*device].push_back(output);
      ++devices_.load[*device];
    } else {
      homeless = true;
    }
  }
  for (std::uint32_t d = 0; d < devices_.shares.size(); ++d)
    if (!devices_.shares[d].empty()) ask_device(step, d, lost_with, now, effects);
  if (!homeless) return;
  if (lost_with) waiting.lost_with = lost_with;
  park(waiting, now);
}

/// Sends its share to one expert group; a row that several of its experts need travels once.
void ExpertCalls::ask_device(StepId step, std::uint32_t number,
                             const std::optional<NodeLife>& lost_with, TimePoint now,
                             ShardEffects& effects) {
  const DeviceRef& device = options_.routes->devices()[number];
  Wanted& share = devices_.shares[number];
  const ExpertCut& cut = waiting_.find(step)->second.cut;
  Dispatch dispatch;
  dispatch.call = next_call_++;
  dispatch.version = options_.routes->version();
  dispatch.layer = cut.layer;
  dispatch.express = cut.express;
  dispatch.pairs.reserve(share.size());
  std::int32_t last = -1;
  for (MissingOutput* output : share) {
    if (std::exchange(last, output->source) != output->source) ++dispatch.rows;
    dispatch.pairs.push_back({dispatch.rows - 1, output->expert});
    output->call = dispatch.call;
  }
  auto buffer = std::make_shared<Buffer>(Buffer::uninitialized(dispatch.rows * cut.row_bytes));
  for (std::size_t i = 0; i < share.size(); ++i) {
    if (i > 0 && dispatch.pairs[i].row == dispatch.pairs[i - 1].row) continue;
    std::memcpy(buffer->data() + dispatch.pairs[i].row * cut.row_bytes,
                cut.rows.data() + static_cast<std::size_t>(share[i]->source) * cut.row_bytes,
                cut.row_bytes);
  }
  dispatch.payload = Payload::of(std::move(buffer));
  const Incarnation incarnation = options_.members.at(device.node);
  calls_[dispatch.call] = {step,           device,       incarnation, now + limits::kExpertSilence,
                           routes_number_, share.size(), lost_with};
  share.clear();
  effects.send(Ref<ExpertGroupInbox>(device.node, incarnation, device.index), std::move(dispatch));
}

/// A copy that cannot be reached is waited for; one that refused is asked again, but not in a
/// circle.
void ExpertCalls::park(Waiting& waiting, TimePoint now) const {
  if (waiting.refused.empty() || waiting.ask_at) return;
  Duration pause = kAskAgainMin;
  for (std::uint32_t i = 0; i < waiting.pauses && pause < kAskAgainMax; ++i) pause *= 2;
  ++waiting.pauses;
  waiting.ask_at = now + std::min(pause, kAskAgainMax);
}

void ExpertCalls::ask_again(StepId step, TimePoint now, ShardEffects& effects) {
  Waiting& waiting = waiting_.find(step)->second;
  waiting.ask_at.reset();
  waiting.refused.clear();
  want_parked(waiting);
  if (!wanted_.empty()) ask(step, std::exchange(waiting.lost_with, {}), now, effects);
}

void ExpertCalls::ask_all_again(TimePoint now, ShardEffects& effects) {
  for (auto& [step, waiting] : waiting_) {
    if (!waiting.first_parked()) continue;
    waiting.heard = now;  // a copy may be back
    ask_again(step, now, effects);
  }
}

// --- Answers ------------------------------------------------------------------------------------

void ExpertCalls::end_call(Calls::iterator it) {
  const Call& call = it->second;
  if (const auto device = options_.routes->number_of(call.device))
    devices_.load[*device] -= call.outputs;
  calls_.erase(it);
}

std::optional<ExpertCalls::Call> ExpertCalls::take_back(std::uint64_t number) {
  const auto it = calls_.find(number);
  if (it == calls_.end()) return std::nullopt;
  const Call call = it->second;
  end_call(it);
  wanted_.clear();
  for (MissingOutput& output : waiting_.find(call.step)->second.cut.missing) {
    if (output.call != number) continue;
    output.call = 0;
    wanted_.push_back(&output);
  }
  return call;
}

ExpertCalls::Answered ExpertCalls::on_output(const ExpertOutput& output, const Address& from,
                                             TimePoint now, ShardEffects& effects) {
  const auto it = calls_.find(output.call);
  if (it == calls_.end()) return {};  // answered by another copy, or the step is gone
  if (from.node != it->second.device.node) return {{}, false};
  const StepId step = it->second.step;
  Waiting& waiting = waiting_.find(step)->second;
  const std::size_t wanted = it->second.outputs;
  if (output.pairs != wanted || output.payload.bytes.size() != wanted * waiting.cut.row_bytes) {
    on_refusal(output.call, now, effects);
    return {{}, false};
  }
  waiting.heard = now;
  waiting.lacks -= wanted;
  waiting.cut.answers.push_back({output.call, output.payload});
  end_call(it);
  return {step, true};
}

void ExpertCalls::on_progress(std::uint64_t number, const Address& from, TimePoint now) {
  const auto it = calls_.find(number);
  if (it == calls_.end() || from.node != it->second.device.node) return;
  it->second.deadline = now + limits::kExpertSilence;
  waiting_.find(it->second.step)->second.heard = now;
}

void ExpertCalls::on_refusal(std::uint64_t number, TimePoint now, ShardEffects& effects) {
  const auto call = take_back(number);
  if (!call) return;
  waiting_.find(call->step)->second.refused.insert(call->device);
  ask(call->step, call->lost_with, now, effects);
}

/// Its node died, or cannot be reached, with the rows.
void ExpertCalls::on_lost_call(std::uint64_t number, TimePoint now, FailedSteps& failed,
                               ShardEffects& effects) {
  const auto call = take_back(number);
  if (!call) return;
  const NodeLife life{call->device.node, call->incarnation};
  // With the same one again only the connection was lost.
  if (call->lost_with && call->lost_with != life)
    return fail(call->step,
                unavailable("Rows of a step were lost with two nodes in a row, the last of them " +
                            to_string(call->device.node) + ", so that no third one is asked."),
                failed);
  ask(call->step, life, now, effects);
}

/// Silence: another copy is asked if every output has one.
void ExpertCalls::on_late_call(std::uint64_t number, TimePoint now, FailedSteps& failed,
                               ShardEffects& effects) {
  const auto call = take_back(number);
  if (!call) return;
  Waiting& waiting = waiting_.find(call->step)->second;
  waiting.refused.insert(call->device);
  const CopyView view = view_for(waiting);
  for (const MissingOutput* output : wanted_)
    if (!choose_copy(options_.routes->copies(waiting.cut.layer, output->expert), 0, view))
      return fail(call->step,
                  deadline_exceeded("The experts on " + to_string(call->device) +
                                    " did not answer in time."),
                  failed);
  ask(call->step, call->lost_with, now, effects);
}

FailedSteps ExpertCalls::end_late_calls(TimePoint now, ShardEffects& effects) {
  FailedSteps failed;
  std::vector<std::uint64_t> late;
  for (const auto& [number, call] : calls_)
    if (call.deadline <= now) late.push_back(number);
  for (const std::uint64_t number : late) on_late_call(number, now, failed, effects);
  return failed;
}

/// What is complete waits for nobody but the shard's own job.
FailedSteps ExpertCalls::end_stalled(TimePoint now) {
  FailedSteps failed;
  for (const auto& [step, waiting] : waiting_)
    if (!complete(step) && waiting.heard + limits::kStepDeadline <= now)
      failed.push_back({step, why_stalled(waiting)});
  for (const auto& [step, error] : failed) forget(step);
  return failed;
}

void ExpertCalls::end_pauses(TimePoint now, ShardEffects& effects) {
  for (const auto& [step, waiting] : waiting_)
    if (waiting.ask_at && *waiting.ask_at <= now) ask_again(step, now, effects);
}

// --- Steps go on and end ------------------------------------------------------------------------

bool ExpertCalls::complete(StepId step) const {
  const auto it = waiting_.find(step);
  return it == waiting_.end() || it->second.lacks == 0;
}

ExpertCut ExpertCalls::take(StepId step) {
  const auto it = waiting_.find(step);
  if (it == waiting_.end()) return {};
  ExpertCut cut = std::move(it->second.cut);
  waiting_.erase(it);
  return cut;
}

void ExpertCalls::forget(StepId step) {
  const auto it = waiting_.find(step);
  if (it == waiting_.end()) return;
  for (auto call = calls_.begin(); call != calls_.end();) {
    if (call->second.step == step)
      end_call(call);
    else
      ++call;
  }
  waiting_.erase(it);
}

void ExpertCalls::fail(StepId step, Error error, FailedSteps& failed) {
  forget(step);
  failed.push_back({step, std::move(error)});
}

Error ExpertCalls::why_stalled(const Waiting& waiting) const {
  const MissingOutput* parked = waiting.first_parked();
  if (!parked) return deadline_exceeded("The experts of other devices did not answer in time.");
  const std::int32_t expert = parked->expert;
  std::string where;
  for (const std::uint32_t copy : options_.routes->copies(waiting.cut.layer, expert))
    where += (where.empty() ? "" : ", ") + to_string(options_.routes->devices()[copy]);
  return unavailable("Expert " + std::to_string(expert) + " of layer " +
                     std::to_string(waiting.cut.layer) + " cannot be reached (it is on " +
                     (where.empty() ? "no device" : where) + ").");
}

std::vector<StepId> ExpertCalls::steps() const {
  std::vector<StepId> steps;
  for (const auto& [step, waiting] : waiting_) steps.push_back(step);
  return steps;
}

// --- Members and routes change ------------------------------------------------------------------

FailedSteps ExpertCalls::on_peer_down(NodeId node, TimePoint now, ShardEffects& effects) {
  FailedSteps failed;
  const auto member = options_.members.find(node);
  down_[node] = member == options_.members.end() ? Incarnation{} : member->second;
  number_devices();
  std::vector<std::uint64_t> lost;
  for (const auto& [number, call] : calls_)
    if (call.device.node == node) lost.push_back(number);
  for (const std::uint64_t number : lost) on_lost_call(number, now, failed, effects);
  return failed;
}

void ExpertCalls::on_peer_up(NodeId node, TimePoint now, ShardEffects& effects) {
  if (down_.erase(node) == 0) return;
  number_devices();
  ask_all_again(now, effects);
}

void ExpertCalls::on_avoided(std::set<DeviceRef> devices) {
  avoided_ = std::move(devices);
  number_devices();
}

FailedSteps ExpertCalls::on_routes(RoutesChanged changed, TimePoint now, ShardEffects& effects) {
  FailedSteps failed;
  options_.routes = std::move(changed.routes);
  options_.members = std::move(changed.members);
  unsettled_[++routes_number_] = options_.routes->version();
  std::erase_if(down_, [&](const auto& down) {
    const auto member = options_.members.find(down.first);
    return member != options_.members.end() && member->second > down.second;
  });
  number_devices();
  // A node that left may still answer; an earlier life of one that is here will not.
  std::vector<std::uint64_t> lost;
  for (const auto& [number, call] : calls_) {
    const auto member = options_.members.find(call.device.node);
    if (member != options_.members.end() && member->second != call.incarnation)
      lost.push_back(number);
  }
  for (const std::uint64_t number : lost) on_lost_call(number, now, failed, effects);
  ask_all_again(now, effects);
  return failed;
}

std::vector<PlacementVersion> ExpertCalls::take_settled() {
  std::vector<PlacementVersion> settled;
  if (unsettled_.empty()) return settled;
  std::uint64_t oldest = routes_number_;
  for (const auto& [number, call] : calls_) oldest = std::min(oldest, call.routes);
  while (!unsettled_.empty() && unsettled_.begin()->first <= oldest) {
    settled.push_back(unsettled_.begin()->second);
    unsettled_.erase(unsettled_.begin());
  }
  return settled;
}

void ExpertCalls::arrange_wake(ShardEffects& effects) const {
  for (const auto& [number, call] : calls_) effects.wake_at(call.deadline);
  for (const auto& [step, waiting] : waiting_) {
    if (waiting.ask_at) effects.wake_at(*waiting.ask_at);
    if (!complete(step)) effects.wake_at(waiting.heard + limits::kStepDeadline);
  }
}

// --- Invariants ---------------------------------------------------------------------------------

std::string ExpertCalls::violation() const {
  std::uint64_t oldest = routes_number_;
  const ExpertRoutes& routes = *options_.routes;
  std::vector<std::uint64_t> owed(routes.devices().size());
  for (const auto& [number, call] : calls_) {
    if (const auto device = routes.number_of(call.device)) owed[*device] += call.outputs;
    oldest = std::min(oldest, call.routes);
    const auto waiting = waiting_.find(call.step);
    const auto asks = [number = number](const MissingOutput& m) { return m.call == number; };
    if (waiting == waiting_.end() || call.outputs == 0 ||
        std::cmp_not_equal(std::ranges::count_if(waiting->second.cut.missing, asks), call.outputs))
      return "question " + std::to_string(number) + " is not for what its step waits for";
  }
  for (std::size_t i = 0; i < owed.size(); ++i) {
    const DeviceRef& device = routes.devices()[i];
    if (owed[i] != devices_.load[i])
      return "the load of " + to_string(device) + " is not the sum of what it was asked";
    if ((devices_.unreachable[i] != 0) == reachable(device.node))
      return "whether " + to_string(device) + " can be reached is not what is known of its node";
  }
  for (const auto& [step, waiting] : waiting_) {
    if (auto found = violation_of(step, waiting); !found.empty()) return found;
  }
  if (!unsettled_.empty() && unsettled_.begin()->first <= oldest)
    return "routes are settled, and nobody was told";
  return {};
}

std::string ExpertCalls::violation_of(StepId step, const Waiting& waiting) const {
  const std::string name = "step " + std::to_string(step.value);
  std::size_t lacks = 0;
  for (const MissingOutput& output : waiting.cut.missing) {
    const auto answers = std::ranges::count(waiting.cut.answers, output.call, &ExpertAnswer::call);
    if (answers == 0) ++lacks;
    if (answers + (output.call == 0 || calls_.contains(output.call) ? 1 : 0) != 1)
      return name + " lacks outputs that are neither here nor parked nor asked for";
  }
  if (lacks != waiting.lacks) return name + " lacks another number of outputs than it counts";
  if (waiting.ask_at && !waiting.first_parked()) return name + " pauses for nothing";
  if (waiting.ask_at) return {};
  // What is parked without a pause goes on when routes or a peer come, so it must need one.
  for (const auto& output : waiting.cut.missing)
    for (const std::uint32_t copy : options_.routes->copies(waiting.cut.layer, output.expert))
      if (output.call == 0 && devices_.unreachable[copy] == 0)
        return name + " has parked rows that " + to_string(options_.routes->devices()[copy]) +
               " has";
  return {};
}

}  // namespace troupe
