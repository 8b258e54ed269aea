// A Replica's express steps: whoever goes ahead does not wait for the end of the step in flight.
#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "actors/replica/replica.h"
#include "runtime/limits.h"

namespace troupe {

/// One at a time, while the others have had their part of the time: five times as long as they may
/// be passed. A sequence that may be what makes steps fail is alone with its step.
bool Replica::express_may_begin() {
  if (express_.owners.empty() || express_.credit <= Duration{}) return false;
  if (std::ranges::any_of(steps_, [](const auto& entry) { return entry.second.express; }))
    return false;
  const auto suspect = [](const auto& entry) {
    return entry.second.busy && entry.second.suspect();
  };
  if (std::ranges::any_of(running_, suspect)) return false;
  const bool likely = somebody_may_go_ahead();
  express_.owners.clear();
  return likely;
}

/// Whether it is worth asking whose turn it is, which takes long where many wait: an owner that has
/// come asks for less than one in flight, where a sequence that waits counts as a place.
bool Replica::somebody_may_go_ahead() const {
  const PlanLimits limits = plan_limits();
  const double place = 1.0 / limits.sequences_running;
  std::map<std::uint64_t, double> running;  // parts of the replica, by the owner's weight
  for (const auto& [key, s] : running_) {
    const double blocks = blocks_for(s.length(), limits.block_size);
    running[s.submit.owner] += std::max(place, blocks / kv_.total()) / s.submit.weight;
  }
  const auto asks_for = [&](std::uint64_t owner, float weight) {
    const auto queue = owners_.queues.find(owner);
    const std::size_t waits = queue == owners_.queues.end() ? 0 : queue->second.size();
    return running[owner] + static_cast<double>(waits) * place / weight;
  };
  double most = 0;
  for (const auto& [key, s] : running_)
    if (s.busy) most = std::max(most, asks_for(s.submit.owner, s.submit.weight));
  return std::ranges::any_of(
      express_.owners, [&](const auto& came) { return asks_for(came.first, came.second) < most; });
}

/// A step has come back. Those that an express step has passed stood still meanwhile: on a device
/// that computes in order they end before it.
void Replica::note_time(const Step& step, TimePoint now) {
  const Duration took = now - step.began;
  if (!step.express) {
    const Duration own = std::max(took - step.passed_for, Duration{});
    chunk_.on_step(step.rows, step.prompt_rows, own);
    const auto earned = std::chrono::duration_cast<Duration>((stretch::kAhead - 1) *
                                                             std::chrono::duration<double>(own));
    express_.credit = std::min<Duration>(express_.credit + earned, limits::kStepTarget);
    return;
  }
  express_.credit -= took;
  for (auto& [id, other] : steps_) other.passed_for += std::min(took, now - other.began);
  for (const Share& share : step.shares) {
    const Submit& submit = running_.at(share.key).submit;
    express_.owners[submit.owner] = submit.weight;
  }
}

/// Prompts that go ahead of somebody whose rows are in flight. A newcomer that lacks nothing but a
/// place has that of the last turn, which makes way when its step has ended. Where somebody streams
/// that they do not all go ahead of, one passes a step, and is as short as one of streams.
StepChoice Replica::choose_express() const {
  PlanLimits limits = plan_limits();
  Turns all = turns(limits);
  double farthest = 0;
  for (const PlanSequence& s : all.running)
    if (running_.at(s.key).busy) farthest = std::max(farthest, s.reach);
  double last = 0;
  std::set<std::uint64_t> owners;
  const auto behind = [&](const PlanSequence& s) {
    if (s.busy || s.decodes() || goes_ahead_of(s) > farthest) return true;
    last = std::max(last, goes_ahead_of(s));
    owners.insert(s.owner);
    return false;
  };
  for (PlanSequence& s : all.running) s.busy = behind(s);
  std::erase_if(all.waiting, behind);
  if (owners.empty()) return {};
  const bool short_ones = std::ranges::any_of(all.running, [&](const PlanSequence& s) {
    return s.decodes() && s.reach < last && !owners.contains(s.owner);
  });
  const auto passed = [](const auto& entry) { return entry.second.passed_for > Duration{}; };
  if (short_ones && std::ranges::any_of(steps_, passed)) return {};
  const bool full = static_cast<std::int32_t>(running_.size()) == limits.sequences_running;
  if (full && !all.waiting.empty() && all.running.back().begins >= all.waiting.front().ends)
    ++limits.sequences_running;
  limits.rows_a_step = std::min(limits.rows_a_step, limits::kExpressRowsMax);
  limits.prompt_rows_a_step = std::min(
      limits.rows_a_step, chunk_.rows(0, short_ones ? stretch::kExpressShort : stretch::kExpress));
  limits.sequences_a_step = limits.rows_a_step;
  return plan_step(all.running, all.waiting, limits, plan_questions());
}

/// Where an express step has begun with one sequence more than there are places.
bool Replica::give_place_back() {
  const PlanLimits limits = plan_limits();
  if (static_cast<std::int32_t>(running_.size()) <= limits.sequences_running) return false;
  const Turns all = turns(limits);
  const double farthest = std::ranges::max_element(all.running, {}, &PlanSequence::reach)->reach;
  for (const PlanSequence& last : all.running | std::views::reverse) {
    if (last.busy || last.begins == 0 || last.reach < farthest) continue;
    if (!set_canary_aside()) preempt(last.key);
    return true;
  }
  return false;
}

}  // namespace troupe
