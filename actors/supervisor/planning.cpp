#include <algorithm>
#include <cassert>

#include "actors/supervisor/placement_lifecycle.h"
#include "actors/supervisor/times.h"
#include "model/placement/compute_room.h"
#include "model/placement/next_step.h"
#include "model/placement/slot_changes.h"
#include "runtime/byte_size.h"

// What the next version of the placement is: the first one, or a step on the way to where the
// experts should be. repair.cpp: what is missing after a loss.

namespace troupe {
namespace {

/// One background step changes this many layers and loads this much: short enough that a loss or a
/// drain never waits long for it.
constexpr std::size_t kLayersAStep = 4;
constexpr std::uint64_t kBytesAStep = 256ull << 20;
/// What background moves may load in a second, all nodes together; requests read weights too.
constexpr std::uint64_t kMoveBytesPerSecond = 1ull << 30;
/// What the loss of each node would mean is a plan a node; with more of them it is not worth it.
constexpr std::size_t kSurvivalNodesMax = 64;

/// Experts that members still hold of an earlier head's life, as if they were placed there.
std::vector<LayerExperts> held_experts(const ReplanInput& input, const Membership& members) {
  std::map<std::int32_t, LayerExperts> layers;
  for (const auto& [node, its] : input.held) {
    const auto devices = static_cast<std::uint32_t>(members.at(node).inventory.devices.size());
    std::uint32_t turn = 0;
    for (const auto& [layer, experts] : its)
      for (const std::int32_t expert : experts)
        if (expert < input.base.model.num_experts)
          layers[layer].slots.push_back({expert, {node, turn++ % devices}});
  }
  std::vector<LayerExperts> held;
  for (auto& [number, layer] : layers) {
    layer.layer = number;
    const auto& known = input.base.model.layers;
    const auto index = static_cast<std::size_t>(number);
    if (index < known.size() && known[index].has_experts) held.push_back(std::move(layer));
  }
  return held;
}

/// A goal gives copies of experts what steps take where there is no other room: an accelerator has
/// to have it, unless it lacks as much now.
Result<Placement> goal_to_compute(const ReplanInput& input) {
  auto goal = goal_placement(input);
  if (!goal) return goal;
  const Placement living = living_part(input.before, input.base.devices);
  if (accelerators_lack(input.base, *goal) <= accelerators_lack(input.base, living)) return goal;
  return room_to_compute(input.base, *goal, false).error();
}

bool all_cpus(const std::vector<PlacementDevice>& devices) {
  return std::ranges::all_of(devices, [](const auto& d) { return d.kind == "cpu"; });
}

/// Whether accelerators lack more than now to compute with, while they hold what both have.
bool lacks_more(const PlacementInput& input, const Placement& now, const Placement& next) {
  Placement both = next;
  for (const LayerExperts& layer : now.experts) {
    const auto same = std::ranges::find(both.experts, layer.layer, &LayerExperts::layer);
    if (same == both.experts.end()) {
      both.experts.push_back(layer);
      continue;
    }
    const LayerExperts then{layer.layer, ordered_slots(same->slots)};
    const auto leave = slot_changes({layer.layer, ordered_slots(layer.slots)}, then).removed;
    same->slots.insert(same->slots.end(), leave.begin(), leave.end());
  }
  auto lacking = accelerators_lacking(input, now);
  return std::ranges::any_of(accelerators_lacking(input, both), [&](const auto& device) {
    return device.second > lacking[device.first];
  });
}

}  // namespace

ReplanInput PlacementLifecycle::replan_input(const SupervisorOptions& options,
                                             const Membership& members, const Links& links,
                                             const LeftOut& out) const {
  ReplanInput input;
  assert(members.numerics());
  input.base.model = model(options, members);
  input.base.engine = options.engine;
  input.base.numerics = *members.numerics();
  input.base.next_replica = versions_.next_replica();
  input.num_groups = options.expert_groups;
  input.load = balance_.load().tokens();
  if (versions_.active()) input.before = *versions_.active();
  for (const auto& device : members.devices()) {
    const Member& member = members.at(device.device.node);
    if (links.quarantined(member.id) && out.needed_from < kNobodyOut.needed_from) continue;
    input.base.devices.push_back(device);
    const bool needed = member.needed_from <= out.needed_from;
    if (member.id == out.also || (!member.closed_reason.empty() && !needed))
      input.closed.insert(device.device);
    if (member.state == MemberState::kDraining || members.speeds().drained(device.device))
      input.leaving.insert(device.device);
  }
  for (const auto& [id, member] : members.all()) {
    ExpertsHeld& held = input.held[id];
    for (const auto& range : member.inventory.held_shards)
      input.base.held_shards[id].push_back({range.first, range.last, range.rank});
    for (const auto& layer : member.inventory.held_experts)
      held[layer.layer].insert(layer.experts.begin(), layer.experts.end());
    if (member.inventory.tier_memory > 0 && member.state != MemberState::kDraining)
      input.tier_bytes[id] = member.inventory.tier_memory;
  }
  // The second tier is in memory too.
  for (const auto& layer : input.before.tier)
    for (const auto& slot : layer.slots)
      input.held[slot.device.node][layer.layer].insert(slot.expert);
  return input;
}

void PlacementLifecycle::consider(SupervisorTurn& turn) {
  if (service_.stopping()) return;
  if (versions_.may_load(turn.now)) {
    const bool waits = !versions_.active() && inheritance_.waits(turn.members, turn.now);
    if (!versions_.active() && !waits) inherit(turn);
    const bool lets_go = versions_.settling() && versions_.active()->version == room_.made_by;
    if (waits)
      service_.no_trouble();
    else if (!versions_.active())
      form(turn);
    else if (room_.shards_left)
      let_go_first(*versions_.active(), turn);
    else if (!versions_.serves() && !lets_go)
      repair(turn);
    else if (!versions_.settling())
      improve(turn);
  }
  versions_.let_go(turn);
  note(turn);
}

/// The first version of this head's life. What workers still hold of an earlier one is used.
void PlacementLifecycle::form(SupervisorTurn& turn) {
  const auto enough = static_cast<std::size_t>(std::max(1, turn.options.engine.min_devices));
  if (turn.members.devices().size() < enough) return service_.no_trouble();
  if (!turn.members.numerics()) {
    turn.members.pick_numerics();
    turn.record("numerics", "The cluster computes with " +
                                std::string(to_string(*turn.members.numerics())) + ".");
  }
  keep_numerics(turn);
  if (still_impossible(turn)) return;
  auto placement = plan_first({}, turn);
  note_small(placement ? placement->step_tokens : kStepTokensMin, turn);
  if (!placement) {
    const auto all = plan_first({turn.now, {}}, turn);
    if (!all)
      return impossible(plan_first(kNobodyOut, turn) ? kept_out(turn) : placement.error(), turn);
    placement = all;
  }
  take_steps(*placement, turn);
  load(std::move(placement->placement), turn);
}

void PlacementLifecycle::keep_numerics(SupervisorTurn& turn) {
  if (std::exchange(kept_numerics_, turn.members.numerics()) != turn.members.numerics())
    turn.effects.add(KeepNumerics{*turn.members.numerics()});
}

/// Replicas that begin from now on have such steps; those that live keep theirs.
void PlacementLifecycle::take_steps(const Planned& plan, SupervisorTurn& turn) {
  const std::int32_t asked = turn.options.engine.max_num_batched_tokens;
  const std::int32_t before = std::exchange(step_tokens_, plan.step_tokens);
  const std::string steps = "steps of " + std::to_string(step_tokens_) + " tokens";
  if (before != step_tokens_ && step_tokens_ < asked)
    turn.record("placement", "Devices have memory to compute with for " + steps +
                                 ": --max-num-batched-tokens " + std::to_string(asked) +
                                 " would take more.");
  else if (before != step_tokens_ && before != 0)
    turn.record("placement", "Devices have memory to compute with for " + steps + " again.");
  if (plan.lacks.empty()) return told_.tight.clear();
  if (std::exchange(told_.tight, plan.lacks) != plan.lacks)
    turn.record(
        "placement",
        "Steps may take more memory than is planned with; the cluster goes on: " + plan.lacks);
}

/// Why somebody is left out without whom there is no plan: then nothing is to be added, but
/// something to be mended.
Error PlacementLifecycle::kept_out(const SupervisorTurn& turn) {
  for (const auto& [id, member] : turn.members.all())
    for (const std::string& why : {member.closed_reason, turn.links.why_quarantined(id)})
      if (!why.empty()) return unavailable(why);
  return internal_error("There is a plan, and nobody is left out of it.");
}

Result<PlacementLifecycle::Planned> PlacementLifecycle::plan_first(
    const LeftOut& out, const SupervisorTurn& turn) const {
  ReplanInput input = replan_input(turn, out);
  std::erase_if(input.base.devices, [&](const auto& d) { return input.closed.contains(d.device); });
  const bool held = std::any_of(input.held.begin(), input.held.end(),
                                [](const auto& node) { return !node.second.empty(); });
  input.before.experts = held_experts(input, turn.members);
  const Planner planned = [](const ReplanInput& in) { return plan_placement(in.base); };
  const auto begin = [&](const Planner& plan) { return plan_with_steps(input, plan, turn); };
  // What is wanted may be more than there is room for: the goal says what is missing then. And what
  // members hold may be more than what their devices can serve.
  auto first = held ? begin(repair_placement) : begin(planned);
  auto other = first ? first : held ? begin(planned) : begin(repair_placement);
  if (other || !held) return other ? other : first;
  other = plan_tight(input, repair_placement, kStepTokensMin, turn);
  if (!other) other = plan_tight(input, planned, kStepTokensMin, turn);
  return other ? other : first;
}

/// With room to compute. Steps get another size only where no replica lives, which would keep its
/// own.
Result<PlacementLifecycle::Planned> PlacementLifecycle::plan_with_steps(
    ReplanInput input, const Planner& plan, const SupervisorTurn& turn) const {
  const bool chooses = living_part(input.before, input.base.devices).replicas.empty();
  if (!chooses) input.base.engine.max_num_batched_tokens = step_tokens_;
  auto placement = plan_to_compute(
      input.base, compute_costs(input, turn.options, turn.members), [&] { return plan(input); },
      chooses ? kStepTokensMin : step_tokens_);
  if (!placement) return placement.error();
  return Planned{std::move(*placement), input.base.engine.max_num_batched_tokens, {}};
}

/// What has served once goes on with what is left, though steps may take more memory of the host
/// than is planned with. An accelerator has no more.
Result<PlacementLifecycle::Planned> PlacementLifecycle::plan_tight(ReplanInput input,
                                                                   const Planner& plan,
                                                                   std::int32_t tokens,
                                                                   const SupervisorTurn& turn) {
  input.base.compute = compute_costs(input, turn.options, turn.members)(tokens);
  input.base.cpus_compute = false;
  auto placement = plan(input);
  if (!placement) return placement.error();
  if (accelerators_lack(input.base, *placement) > 0)
    return room_to_compute(input.base, *placement, false).error();
  const Status room = room_to_compute(input.base, *placement);
  return Planned{std::move(*placement), tokens, room ? std::string() : room.error().message};
}

/// What steps compute with, on the device with the most threads.
CostsOfSteps PlacementLifecycle::compute_costs(const ReplanInput& input,
                                               const SupervisorOptions& options,
                                               const Membership& members) {
  int threads = 1;
  for (const auto& [id, member] : members.all())
    for (const auto& device : member.inventory.devices)
      threads = std::max(threads, static_cast<int>(device.threads));
  return [&options, threads, numerics = input.base.numerics](std::int32_t tokens) {
    return options.compute(numerics, threads, tokens);
  };
}

/// Devices that are too small for anything, or for shards, are left out of plans by their size;
/// people hear it.
void PlacementLifecycle::note_small(std::int32_t step_tokens, SupervisorTurn& turn) {
  ReplanInput input = replan_input(turn);
  input.base.compute = compute_costs(input, turn.options, turn.members)(step_tokens);
  SmallDevices small = small_devices(input.base);
  const auto tell = [&](const std::vector<DeviceRef>& devices, const std::vector<DeviceRef>& told,
                        const std::string& what) {
    for (const DeviceRef& device : devices)
      if (std::find(told.begin(), told.end(), device) == told.end())
        turn.record("left_out", to_string(device) + " on " +
                                    turn.members.at(device.node).inventory.host + what +
                                    "; give it more with --device-memory.");
  };
  tell(small.useless, told_.small.useless,
       " has no room for a single expert or stage and to compute with it, and is left out");
  tell(small.experts_only, told_.small.experts_only,
       " has no room to compute steps of " + std::to_string(step_tokens) +
           " tokens beside a stage, and is given experts only");
  told_.small = std::move(small);
}

void PlacementLifecycle::cannot(const Error& error, SupervisorTurn& turn) {
  if (service_.trouble(error)) turn.record("degraded", error.message);
}

// --- In the background --------------------------------------------------------------------------

void PlacementLifecycle::improve(SupervisorTurn& turn) {
  if (turn.now < goal_.not_before()) return;
  if (goal_.reached() && turn.now >= balance_.next_check() &&
      balance_.check(*versions_.active(), turn.now, turn.effects))
    goal_.discard();
  if (goal_.reached()) return;
  do {
    if (goal_.state() == PlacementGoal::State::kToBeMade && !make_goal(turn)) return;
    if (go_on(turn)) return;
    const bool short_of_it = goal_.placement().experts != versions_.active()->experts;
    goal_.discard();
    const bool drains =
        std::any_of(turn.members.all().begin(), turn.members.all().end(), [&](const auto& m) {
          return m.second.state == MemberState::kDraining && versions_.pieces_on(m.first) > 0;
        });
    if (short_of_it && drains) {
      change_goal(turn.now + kGoalDelay);
      fail_drains(resource_exhausted("There is no memory to exchange experts in; add a worker."),
                  turn);
      return;
    }
  } while (balance_.layers_left());
  goal_.reach();
  balance_.done();
  welcome(turn);
  report_operations(turn);
}

/// Newcomers have what there is for them, if anything.
void PlacementLifecycle::welcome(SupervisorTurn& turn) {
  for (const auto& [id, member] : turn.members.all())
    if (member.state == MemberState::kJoining && !turn.links.quarantined(id))
      turn.members.at(id).state = MemberState::kReady;
}

bool PlacementLifecycle::go_on(SupervisorTurn& turn) {
  const Placement& active = *versions_.active();
  Placement next = step_to_goal(turn);
  if (same_parts(next, active)) return false;
  const std::size_t copies = copies_added(active, next);
  turn.counters.moves += copies;
  const auto bytes = copies * model(turn.options, turn.members).expert_bytes;
  const double seconds = static_cast<double>(bytes) / static_cast<double>(kMoveBytesPerSecond);
  goal_.wait_until(turn.now +
                   std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
  load(std::move(next), turn);
  return true;
}

/// Where there is no room for the replicas that are asked for, those that serve are enough: experts
/// and the second tier are laid out all the same.
Result<Placement> PlacementLifecycle::plan_goal(const ReplanInput& input, SupervisorTurn& turn) {
  Result<Placement> goal = goal_to_compute(input);
  const std::int32_t asked = input.base.engine.data_parallel_size;
  const auto serving = static_cast<std::int32_t>(
      std::max<std::size_t>(1, living_part(input.before, input.base.devices).replicas.size()));
  if (goal) told_.fewer.clear();
  if (goal || goal.error().code != ErrorCode::kResourceExhausted || asked <= serving) return goal;
  ReplanInput fewer = input;
  fewer.base.engine.data_parallel_size = serving;
  auto enough = goal_to_compute(fewer);
  if (!enough) return goal;
  const std::string text = "The cluster goes on with " + std::to_string(serving) + " of the " +
                           std::to_string(asked) +
                           " replicas that are asked for: " + goal.error().message;
  if (std::exchange(told_.fewer, text) != text) turn.record("plan", text);
  return enough;
}

bool PlacementLifecycle::make_goal(SupervisorTurn& turn) {
  note_small(step_tokens_, turn);
  const auto goal_input = [&] {
    ReplanInput input = replan_input(turn);
    input.base.compute = compute_costs(input, turn.options, turn.members)(step_tokens_);
    return input;
  };
  ReplanInput input = goal_input();
  // A few layers at a time: it takes milliseconds each in a large cluster.
  input.balance_layers = balance_.take_layers(kLayersAStep);
  Result<Placement> goal = plan_goal(input, turn);
  if (!goal && !input.leaving.empty()) {
    fail_drains(goal.error(), turn);
    auto layers = std::move(input.balance_layers);
    input = goal_input();
    input.balance_layers = std::move(layers);
    goal = plan_goal(input, turn);
  }
  if (!goal) {
    // It serves as it is; more cannot be had until something changes.
    turn.record("plan", goal.error().message);
    goal_.reach();
    welcome(turn);
    balance_.give_up();
    operations_.fail_rebalances(goal.error(), turn.effects);
    report_operations(turn);
    return false;
  }
  if (!input.balance_layers.empty()) {
    balance_.keep_what_helps(*versions_.active(), input.leaving, *goal, input.balance_layers);
    if (!input.balance_layers.empty() || balance_.asked()) balance_.begun(turn.now);
  }
  goal_.set(std::move(*goal));
  const std::size_t copies = moves_pending();
  if (copies > 0)
    turn.record("rebalance", std::to_string(copies) + (copies == 1 ? " copy" : " copies") +
                                 " of experts to be moved.");
  return true;
}

/// Experts first, since they bring redundancy back; then the second tier, then replicas.
Placement PlacementLifecycle::step_to_goal(const SupervisorTurn& turn) const {
  const Placement& active = *versions_.active();
  const Placement& goal = goal_.placement();
  Placement next = active;
  ReplanInput input = replan_input(turn);
  NextStepInput step;
  step.current = active.experts;
  step.goal = goal.experts;
  step.expert_bytes = input.base.model.expert_bytes;
  step.max_layers = static_cast<std::int32_t>(kLayersAStep);
  step.max_bytes = kBytesAStep;
  input.base.compute = compute_costs(input, turn.options, turn.members)(step_tokens_);
  std::map<DeviceRef, std::uint64_t> others, compute;
  for (const Placement* placement : {&active, &goal}) {
    for (const auto& use : placement_use(input.base, *placement))
      others[use.device] = std::max(others[use.device], use.total() - use.expert_bytes);
    for (const auto& [device, bytes] : compute_bytes(input.base, *placement, *input.base.compute))
      compute[device] = std::max(compute[device], bytes);
  }
  // On the way, too, accelerators are left what the goal's steps take, or where nothing can be
  // moved so, what those of this way take.
  for (const bool beside_goal : {true, false}) {
    if (beside_goal && all_cpus(input.base.devices)) continue;
    for (const auto& d : input.base.devices) {
      std::uint64_t all = plannable_bytes(d.memory_total);
      if (beside_goal && d.kind != "cpu")
        all = std::min(all, d.memory_total - std::min(d.memory_total, compute[d.device]));
      step.memory[d.device] = all - std::min(all, others[d.device]);
    }
    next.experts = next_step(step);
    if (next.experts == active.experts) continue;
    if (beside_goal || !lacks_more(input.base, active, next)) return next;
    next.experts = active.experts;
  }
  next.tier = goal.tier;
  if (next.tier != active.tier) return next;
  next.replicas = goal.replicas;
  next.shards = goal.shards;
  return next;
}

Survival PlacementLifecycle::survival(const SupervisorOptions& options, const Membership& members,
                                      const Links& links) const {
  if (!versions_.active() || members.all().size() > kSurvivalNodesMax) return {};
  if (survival_) return *survival_;
  ReplanInput input = replan_input(options, members, links);
  if (!all_cpus(input.base.devices)) {
    const CostsOfSteps costs = compute_costs(input, options, members);
    input.base.compute = costs(kStepTokensMin);
    input.base.cpus_compute = false;
    input.living_compute = costs(step_tokens_);
  }
  survival_ = survival_of(input);
  return *survival_;
}

}  // namespace troupe
