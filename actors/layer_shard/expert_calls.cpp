#include "actors/layer_shard/expert_calls.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <tuple>

#include "runtime/limits.h"

namespace troupe {

ExpertCalls::ExpertCalls(Options options) : options_(std::move(options)) {}

// --- Questions ----------------------------------------------------------------------------------

void ExpertCalls::begin(StepId step, ExpertCut cut, TimePoint now, ShardEffects& effects) {
  const auto [it, fresh] = waiting_.try_emplace(step);
  assert(fresh);
  it->second.cut = std::move(cut);
  it->second.heard = now;
  ask(step, {it->second.cut.missing, {}}, now, effects);
}

bool ExpertCalls::reachable(NodeId node) const {
  return options_.members.contains(node) && !down_.contains(node);
}

std::set<DeviceRef> ExpertCalls::excluded(const Waiting& waiting) const {
  std::set<DeviceRef> excluded = waiting.refused;
  for (const auto& device : options_.routes->devices())
    if (!reachable(device.node)) excluded.insert(device);
  return excluded;
}

/// Shares outputs out among the copies of their experts; parks those that nobody can be asked for.
void ExpertCalls::ask(StepId step, Wanted wanted, TimePoint now, ShardEffects& effects) {
  Waiting& waiting = waiting_.at(step);
  const std::set<DeviceRef> excluded = this->excluded(waiting);
  const CopyView view{options_.device, excluded, avoided_, load_};
  std::map<DeviceRef, Wanted> by_device;
  Wanted homeless{{}, wanted.lost_with};
  for (const auto& output : wanted.outputs) {
    const auto& copies = options_.routes->copies(waiting.cut.layer, output.expert);
    const auto turn = step.value + static_cast<std::uint64_t>(output.expert);
    if (const auto device = choose_copy(copies, turn, view)) {
      by_device[*device].outputs.push_back(output);
      ++load_[*device];
    } else {
      homeless.outputs.push_back(output);
    }
  }
  for (auto& [device, share] : by_device) {
    share.lost_with = wanted.lost_with;
    ask_device(step, device, std::move(share), now, effects);
  }
  if (!homeless.outputs.empty()) park(waiting, std::move(homeless), now);
}

/// Sends rows to one expert group; a row that several of its experts need travels once.
void ExpertCalls::ask_device(StepId step, const DeviceRef& device, Wanted wanted, TimePoint now,
                             ShardEffects& effects) {
  Waiting& waiting = waiting_.at(step);
  const ExpertCut& cut = waiting.cut;
  Dispatch dispatch;
  dispatch.call = next_call_++;
  dispatch.version = options_.routes->version();
  dispatch.layer = cut.layer;
  std::vector<std::int32_t> rows;
  for (const auto& output : wanted.outputs) {
    if (rows.empty() || rows.back() != output.row) rows.push_back(output.row);
    dispatch.pairs.push_back({static_cast<std::uint32_t>(rows.size() - 1), output.expert});
  }
  dispatch.rows = static_cast<std::uint32_t>(rows.size());
  auto buffer = std::make_shared<Buffer>(rows.size() * cut.row_bytes);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(buffer->data() + i * cut.row_bytes,
                cut.rows.bytes.data() + static_cast<std::size_t>(rows[i]) * cut.row_bytes,
                cut.row_bytes);
  dispatch.payload = Payload::of(std::move(buffer));
  const Incarnation incarnation = options_.members.at(device.node);
  waiting.calls.insert(dispatch.call);
  calls_[dispatch.call] = {
      step, device, incarnation, now + limits::kExpertSilence, routes_number_, std::move(wanted)};
  effects.send(Ref<ExpertGroupInbox>(device.node, incarnation, device.index), std::move(dispatch));
}

void ExpertCalls::park(Waiting& waiting, Wanted wanted, TimePoint now) const {
  auto& parked = waiting.parked.outputs;
  parked.insert(parked.end(), wanted.outputs.begin(), wanted.outputs.end());
  if (wanted.lost_with) waiting.parked.lost_with = wanted.lost_with;
  // A copy that cannot be reached is waited for; one that refused is asked again, but not in a
  // circle.
  if (waiting.refused.empty() || waiting.ask_at) return;
  Duration pause = kAskAgainMin;
  for (std::uint32_t i = 0; i < waiting.pauses && pause < kAskAgainMax; ++i) pause *= 2;
  ++waiting.pauses;
  waiting.ask_at = now + std::min(pause, kAskAgainMax);
}

void ExpertCalls::ask_again(StepId step, TimePoint now, ShardEffects& effects) {
  Waiting& waiting = waiting_.at(step);
  waiting.ask_at.reset();
  waiting.refused.clear();
  Wanted wanted = std::exchange(waiting.parked, {});
  if (wanted.outputs.empty()) return;
  std::sort(wanted.outputs.begin(), wanted.outputs.end(), [](const auto& a, const auto& b) {
    return std::tie(a.row, a.slot) < std::tie(b.row, b.slot);
  });
  ask(step, std::move(wanted), now, effects);
}

void ExpertCalls::ask_all_again(TimePoint now, ShardEffects& effects) {
  for (auto& [step, waiting] : waiting_) {
    if (waiting.parked.outputs.empty()) continue;
    waiting.heard = now;  // a copy may be back
    ask_again(step, now, effects);
  }
}

// --- Answers ------------------------------------------------------------------------------------

ExpertCalls::Call ExpertCalls::end_call(Calls::iterator it) {
  Call call = std::move(it->second);
  waiting_.at(call.step).calls.erase(it->first);
  calls_.erase(it);
  const auto load = load_.find(call.device);
  load->second -= call.wanted.outputs.size();
  if (load->second == 0) load_.erase(load);
  return call;
}

std::optional<ExpertCalls::Call> ExpertCalls::end_call(std::uint64_t number) {
  const auto it = calls_.find(number);
  return it == calls_.end() ? std::nullopt : std::optional(end_call(it));
}

ExpertCalls::Answered ExpertCalls::on_output(const ExpertOutput& output, const Address& from,
                                             TimePoint now, ShardEffects& effects) {
  const auto it = calls_.find(output.call);
  if (it == calls_.end()) return {};  // answered by another copy, or the step is gone
  if (from.node != it->second.device.node) return {{}, false};
  const StepId step = it->second.step;
  Waiting& waiting = waiting_.at(step);
  const std::size_t wanted = it->second.wanted.outputs.size();
  if (output.pairs != wanted || output.payload.bytes.size() != wanted * waiting.cut.row_bytes) {
    on_refusal(output.call, now, effects);
    return {{}, false};
  }
  waiting.heard = now;
  waiting.arrivals.push_back({end_call(it).wanted.outputs, output.payload});
  return {step, true};
}

void ExpertCalls::on_progress(std::uint64_t number, const Address& from, TimePoint now) {
  const auto it = calls_.find(number);
  if (it == calls_.end() || from.node != it->second.device.node) return;
  it->second.deadline = now + limits::kExpertSilence;
  waiting_.at(it->second.step).heard = now;
}

void ExpertCalls::on_refusal(std::uint64_t number, TimePoint now, ShardEffects& effects) {
  auto call = end_call(number);
  if (!call) return;
  waiting_.at(call->step).refused.insert(call->device);
  ask(call->step, std::move(call->wanted), now, effects);
}

/// Its node died, or cannot be reached, with the rows.
void ExpertCalls::on_lost_call(std::uint64_t number, TimePoint now, FailedSteps& failed,
                               ShardEffects& effects) {
  auto call = end_call(number);
  if (!call) return;
  const NodeLife life{call->device.node, call->incarnation};
  // With the same one again only the connection was lost.
  if (call->wanted.lost_with && call->wanted.lost_with != life)
    return fail(call->step,
                unavailable("Rows of a step were lost with two nodes in a row, the last of them " +
                            to_string(call->device.node) + ", so that no third one is asked."),
                failed);
  call->wanted.lost_with = life;
  ask(call->step, std::move(call->wanted), now, effects);
}

/// Silence: another copy is asked if every output has one.
void ExpertCalls::on_late_call(std::uint64_t number, TimePoint now, FailedSteps& failed,
                               ShardEffects& effects) {
  auto call = end_call(number);
  if (!call) return;
  Waiting& waiting = waiting_.at(call->step);
  waiting.refused.insert(call->device);
  const std::set<DeviceRef> excluded = this->excluded(waiting);
  const CopyView view{options_.device, excluded, avoided_, load_};
  for (const auto& output : call->wanted.outputs)
    if (!choose_copy(options_.routes->copies(waiting.cut.layer, output.expert), 0, view))
      return fail(call->step,
                  deadline_exceeded("The experts on " + to_string(call->device) +
                                    " did not answer in time."),
                  failed);
  ask(call->step, std::move(call->wanted), now, effects);
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
  return it == waiting_.end() || (it->second.calls.empty() && it->second.parked.outputs.empty());
}

std::vector<ExpertArrival> ExpertCalls::take(StepId step) {
  auto waiting = waiting_.extract(step);
  if (!waiting) return {};
  return std::move(waiting.mapped().arrivals);
}

void ExpertCalls::forget(StepId step) {
  const auto it = waiting_.find(step);
  if (it == waiting_.end()) return;
  auto& calls = it->second.calls;
  while (!calls.empty()) end_call(calls_.find(*calls.begin()));
  waiting_.erase(it);
}

void ExpertCalls::fail(StepId step, Error error, FailedSteps& failed) {
  forget(step);
  failed.push_back({step, std::move(error)});
}

Error ExpertCalls::why_stalled(const Waiting& waiting) const {
  if (waiting.parked.outputs.empty())
    return deadline_exceeded("The experts of other devices did not answer in time.");
  const std::int32_t expert = waiting.parked.outputs.front().expert;
  std::string where;
  for (const auto& copy : options_.routes->copies(waiting.cut.layer, expert))
    where += (where.empty() ? "" : ", ") + to_string(copy);
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
  std::vector<std::uint64_t> lost;
  for (const auto& [number, call] : calls_)
    if (call.device.node == node) lost.push_back(number);
  for (const std::uint64_t number : lost) on_lost_call(number, now, failed, effects);
  return failed;
}

void ExpertCalls::on_peer_up(NodeId node, TimePoint now, ShardEffects& effects) {
  if (down_.erase(node) > 0) ask_all_again(now, effects);
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
  std::uint64_t owed = 0, oldest = routes_number_;
  std::size_t listed = 0;
  for (const auto& [number, call] : calls_) {
    owed += call.wanted.outputs.size();
    oldest = std::min(oldest, call.routes);
    const auto waiting = waiting_.find(call.step);
    if (waiting == waiting_.end() || !waiting->second.calls.contains(number))
      return "question " + std::to_string(number) + " is open for a step that does not wait for it";
  }
  for (const auto& [device, load] : load_) {
    std::uint64_t sum = 0;
    for (const auto& [number, call] : calls_)
      if (call.device == device) sum += call.wanted.outputs.size();
    if (sum != load || load == 0)
      return "the load of " + to_string(device) + " is not the sum of what it was asked";
    owed -= load;
  }
  if (owed != 0) return "a device was asked and has no load";
  for (const auto& [step, waiting] : waiting_) {
    listed += waiting.calls.size();
    if (auto found = violation_of(step, waiting); !found.empty()) return found;
  }
  if (listed != calls_.size()) return "a step waits for a question that is not open";
  if (!unsettled_.empty() && unsettled_.begin()->first <= oldest)
    return "routes are settled, and nobody was told";
  return {};
}

std::string ExpertCalls::violation_of(StepId step, const Waiting& waiting) const {
  const std::string name = "step " + std::to_string(step.value);
  std::size_t known = waiting.parked.outputs.size();
  for (const auto& arrival : waiting.arrivals) known += arrival.outputs.size();
  for (const std::uint64_t number : waiting.calls)
    if (const auto call = calls_.find(number); call != calls_.end())
      known += call->second.wanted.outputs.size();
  if (known != waiting.cut.missing.size())
    return name + " lacks outputs that are neither here nor parked nor asked for";
  if (waiting.ask_at && waiting.parked.outputs.empty()) return name + " pauses for nothing";
  if (waiting.ask_at) return {};
  // What is parked without a pause goes on when routes or a peer come, so it must need one.
  for (const auto& output : waiting.parked.outputs)
    for (const auto& copy : options_.routes->copies(waiting.cut.layer, output.expert))
      if (reachable(copy.node)) return name + " has parked rows that " + to_string(copy) + " has";
  return {};
}

}  // namespace troupe
