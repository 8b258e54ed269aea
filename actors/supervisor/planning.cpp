#include <algorithm>
#include <cassert>

#include "actors/supervisor/supervisor.h"
#include "model/placement/next_step.h"
#include "model/placement/slot_changes.h"

// What the next version of the placement is: the first one, what is missing after a loss, or a step
// on the way to where the experts should be.

namespace troupe {
namespace {

/// One background step changes this many layers and loads this much: short enough that a loss or a
/// drain never waits long for it.
constexpr std::size_t kLayersAStep = 4;
constexpr std::uint64_t kBytesAStep = 256ull << 20;
/// What background moves may load in a second, all nodes together; requests read weights too.
constexpr std::uint64_t kMoveBytesPerSecond = 1ull << 30;
/// Tokens that must have been counted before their spread means anything.
constexpr std::uint64_t kTokensToJudge = 10'000;
/// Experts are laid out anew when the busiest device has this much more than the mean, and the new
/// layout takes away this share of the excess at least.
constexpr double kImbalanceMax = 1.25;
constexpr double kGainMin = 0.25;
/// What the loss of each node would mean is a plan a node; with more of them it is not worth it.
constexpr std::size_t kSurvivalNodesMax = 64;

std::size_t copies_added(const Placement& before, const Placement& after) {
  std::map<std::int32_t, const LayerExperts*> had;
  for (const auto& layer : before.experts) had[layer.layer] = &layer;
  std::size_t added = 0;
  for (const auto& layer : after.experts) {
    const auto old = had.find(layer.layer);
    added += old == had.end() ? layer.slots.size() : slot_changes(*old->second, layer).added.size();
  }
  return added;
}

}  // namespace

std::vector<PlacementDevice> Supervisor::devices_here() const {
  std::vector<PlacementDevice> devices;
  for (const auto& [id, member] : members_) {
    for (std::size_t i = 0; i < member.inventory.devices.size(); ++i) {
      if (!member.devices[i].failed.empty()) continue;
      const auto& device = member.inventory.devices[i];
      devices.push_back({{id, static_cast<std::uint32_t>(i)}, device.kind, device.memory_total});
    }
  }
  return devices;
}

std::string Supervisor::waiting_message() const {
  return "Waiting for devices: " + std::to_string(devices_here().size()) + " of " +
         std::to_string(std::max(1, options_.engine.min_devices)) +
         " are here; to add a worker run: " + options_.join_line;
}

ReplanInput Supervisor::replan_input() const {
  ReplanInput input;
  assert(numerics_);
  input.base.model = model();
  input.base.engine = options_.engine;
  input.base.numerics = *numerics_;
  input.base.next_replica = next_replica_;
  input.num_groups = options_.expert_groups;
  input.load = expert_load_.tokens();
  if (active_) input.before = *active_;
  for (const auto& device : devices_here()) {
    const Member& member = members_.at(device.device.node);
    if (quarantined(member.id)) continue;
    input.base.devices.push_back(device);
    if (!member.closed_reason.empty()) input.closed.insert(device.device);
    const auto speed = speeds_.find(device.device);
    const bool drained = speed != speeds_.end() && speed->second.drained;
    if (member.state == MemberState::kDraining || drained) input.leaving.insert(device.device);
  }
  for (const auto& [id, member] : members_) {
    HeldWeights& held = input.held[id];
    for (const auto& range : member.inventory.held_shards)
      held.shards.emplace_back(range.first, range.last);
    for (const auto& layer : member.inventory.held_experts)
      held.experts[layer.layer].insert(layer.experts.begin(), layer.experts.end());
    if (member.inventory.tier_memory > 0 && member.state != MemberState::kDraining)
      input.tier_bytes[id] = member.inventory.tier_memory;
  }
  // The second tier is in memory too.
  for (const auto& layer : input.before.tier)
    for (const auto& slot : layer.slots)
      input.held[slot.device.node].experts[layer.layer].insert(slot.expert);
  return input;
}

void Supervisor::consider(TimePoint now, SupervisorActions& actions) {
  if (state_ == ClusterState::kStopping) {
    finish_stop(now, actions);
    return;
  }
  if (!pending_ && !(retry_at_ && now < *retry_at_)) {
    retry_at_.reset();
    if (!active_)
      form(now, actions);
    else if (!serves_)
      repair(now, actions);
    else if (settling_.empty())
      improve(now, actions);
  }
  note_state(now, actions);
}

/// The first version of this head's life. What workers still hold of an earlier one is used.
void Supervisor::form(TimePoint now, SupervisorActions& actions) {
  if (devices_here().size() < static_cast<std::size_t>(std::max(1, options_.engine.min_devices)))
    return;
  if (!numerics_) {
    numerics_ = common_numerics();
    assert(numerics_);  // check_join() lets nobody in who has none in common with the others
    record("numerics", "The cluster computes with " + std::string(to_string(*numerics_)) + ".", now,
           actions);
  }
  ReplanInput input = replan_input();
  std::erase_if(input.base.devices, [&](const auto& d) { return input.closed.contains(d.device); });
  if (input.base.devices.empty()) {
    for (const auto& [id, member] : members_)
      if (!member.closed_reason.empty())
        return cannot(unavailable(member.closed_reason), now, actions);
    return;
  }
  bool held = false;
  std::map<std::int32_t, LayerExperts> layers;
  for (const auto& [node, weights] : input.held) {
    const auto devices = members_.at(node).inventory.devices.size();
    std::uint32_t turn = 0;
    for (const auto& [layer, experts] : weights.experts)
      for (const std::int32_t expert : experts)
        layers[layer].slots.push_back(
            {expert, {node, turn++ % static_cast<std::uint32_t>(devices)}});
    held = held || !weights.experts.empty();
  }
  for (auto& [number, layer] : layers) {
    layer.layer = number;
    const bool known = static_cast<std::size_t>(number) < input.base.model.layers.size() &&
                       input.base.model.layers[static_cast<std::size_t>(number)].has_experts;
    if (known) input.before.experts.push_back(std::move(layer));
  }
  auto placement = held ? repair_placement(input) : plan_placement(input.base);
  // What they hold may be more than what their devices can serve.
  if (!placement && held) placement = plan_placement(input.base);
  if (!placement) return cannot(placement.error(), now, actions);
  load(*placement, now, actions);
}

void Supervisor::repair(TimePoint now, SupervisorActions& actions) {
  const ReplanInput input = replan_input();
  auto placement = repair_placement(input);
  if (!placement && !input.leaving.empty()) {
    // Who was to leave is needed.
    fail_drains(placement.error(), now, actions);
    placement = repair_placement(replan_input());
  }
  if (!placement) return cannot(placement.error(), now, actions);
  load(*placement, now, actions);
}

void Supervisor::cannot(const Error& error, TimePoint now, SupervisorActions& actions) {
  if (trouble_ == error.message) return;
  trouble_ = error.message;
  record("degraded", trouble_, now, actions);
}

// --- In the background --------------------------------------------------------------------------

void Supervisor::improve(TimePoint now, SupervisorActions& actions) {
  if (now < improve_at_) return;
  if (goal_reached_ && now >= next_balance_check_) check_balance(now, actions);
  if (goal_reached_ || (!goal_ && !make_goal(now, actions))) return;
  Placement next = step_to_goal();
  if (!same_parts(next, *active_)) {
    const std::size_t copies = copies_added(*active_, next);
    counters_.moves += copies;
    const auto bytes = copies * model().expert_bytes;
    const double seconds = static_cast<double>(bytes) / static_cast<double>(kMoveBytesPerSecond);
    improve_at_ =
        now + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    load(std::move(next), now, actions);
    return;
  }
  const bool stuck = goal_->experts != active_->experts;
  goal_.reset();
  if (stuck && std::any_of(members_.begin(), members_.end(), [&](const auto& m) {
        return m.second.state == MemberState::kDraining && pieces_on(m.first) > 0;
      })) {
    change_goal(now + kGoalDelay);
    fail_drains(resource_exhausted("There is no memory to exchange experts in; add a worker."), now,
                actions);
    return;
  }
  goal_reached_ = balance_left_.empty();
  if (!goal_reached_) return improve(now, actions);
  balance_asked_ = false;
  for (auto& [id, member] : members_)
    if (member.state == MemberState::kJoining && !quarantined(id))
      member.state = MemberState::kReady;
  report_operations(now, actions);
}

bool Supervisor::make_goal(TimePoint now, SupervisorActions& actions) {
  ReplanInput input = replan_input();
  // A few layers at a time: it takes milliseconds each in a large cluster.
  while (!balance_left_.empty() && input.balance_layers.size() < kLayersAStep)
    input.balance_layers.insert(balance_left_.extract(balance_left_.begin()));
  Result<Placement> goal = goal_placement(input);
  if (!goal && !input.leaving.empty()) {
    fail_drains(goal.error(), now, actions);
    auto layers = std::exchange(input.balance_layers, {});
    input = replan_input();
    input.balance_layers = std::move(layers);
    goal = goal_placement(input);
  }
  if (!goal) {
    // It serves as it is; more cannot be had until something changes.
    record("plan", goal.error().message, now, actions);
    goal_reached_ = true;
    balance_left_.clear();
    fail_rebalances(goal.error(), actions);
    report_operations(now, actions);
    return false;
  }
  if (!input.balance_layers.empty()) {
    keep_what_helps(*goal, input.balance_layers);
    if (!input.balance_layers.empty()) last_rebalance_ = now;
  }
  goal_ = std::move(*goal);
  const std::size_t copies = moves_pending();
  if (copies > 0)
    record(
        "rebalance",
        std::to_string(copies) + (copies == 1 ? " copy" : " copies") + " of experts to be moved.",
        now, actions);
  return true;
}

/// Experts first, since they bring redundancy back; then the second tier, then replicas.
Placement Supervisor::step_to_goal() const {
  Placement next = *active_;
  const ReplanInput input = replan_input();
  NextStepInput step;
  step.current = active_->experts;
  step.goal = goal_->experts;
  step.expert_bytes = input.base.model.expert_bytes;
  step.max_layers = static_cast<std::int32_t>(kLayersAStep);
  step.max_bytes = kBytesAStep;
  std::map<DeviceRef, std::uint64_t> others;
  for (const Placement* placement : {&*active_, &*goal_})
    for (const auto& use : placement_use(input.base, *placement))
      others[use.device] = std::max(others[use.device], use.total() - use.expert_bytes);
  for (const auto& d : input.base.devices) {
    const std::uint64_t all = plannable_bytes(d.memory_total);
    step.memory[d.device] = all - std::min(all, others[d.device]);
  }
  next.experts = next_step(step);
  if (next.experts != active_->experts) return next;
  next.tier = goal_->tier;
  if (next.tier != active_->tier) return next;
  next.replicas = goal_->replicas;
  next.shards = goal_->shards;
  return next;
}

std::size_t Supervisor::moves_pending() const {
  return goal_ && active_ ? copies_added(*active_, *goal_) : 0;
}

/// Which layers have a device that is far busier than the others.
void Supervisor::check_balance(TimePoint now, SupervisorActions& actions) {
  next_balance_check_ = now + kBalanceCheckEvery;
  const auto tokens = expert_load_.tokens();
  const bool judge = expert_load_.total() >= kTokensToJudge && now >= next_balance_;
  for (const auto& layer : active_->experts) {
    const auto load = tokens.find(layer.layer);
    if (load == tokens.end()) continue;
    const double imbalance = imbalance_of(layer, load->second);
    if (imbalance > 0) actions.imbalances[layer.layer] = imbalance;
    if (judge && imbalance >= kImbalanceMax) balance_left_.insert(layer.layer);
  }
  if (balance_left_.empty()) return;
  goal_reached_ = false;
  next_balance_ = now + kBalanceEvery;
}

/// A layer that would gain little stays as it is.
void Supervisor::keep_what_helps(Placement& goal, std::set<std::int32_t>& layers) {
  const auto tokens = expert_load_.tokens();
  for (std::size_t l = 0; l < goal.experts.size() && l < active_->experts.size(); ++l) {
    LayerExperts& layer = goal.experts[l];
    const LayerExperts& now = active_->experts[l];
    const auto load = tokens.find(layer.layer);
    if (layer.layer != now.layer || !layers.contains(layer.layer)) continue;
    const double before = load == tokens.end() ? 1 : imbalance_of(now, load->second);
    const double after = load == tokens.end() ? 1 : imbalance_of(layer, load->second);
    const double gain = balance_asked_ ? 1e-6 : kGainMin * (before - 1);
    if (before - after >= gain || now.slots.size() != layer.slots.size()) continue;
    layer = now;
    layers.erase(layer.layer);
  }
}

Survival Supervisor::survival() const {
  if (!active_ || members_.size() > kSurvivalNodesMax) return {};
  if (!survival_) survival_ = survival_of(replan_input());
  return *survival_;
}

}  // namespace troupe
