#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "actors/supervisor/placement_lifecycle.h"
#include "model/placement/compute_room.h"

// Repairs: what is missing after a loss, and what is given up for it.

namespace troupe {

Result<PlacementLifecycle::Planned> PlacementLifecycle::repair_of(
    ReplanInput input, const SupervisorTurn& turn) const {
  auto plan = plan_with_steps(input, repair_placement, turn);
  if (plan) return plan;
  const bool chooses = living_part(input.before, input.base.devices).replicas.empty();
  auto tight =
      plan_tight(std::move(input), repair_placement, chooses ? kStepTokensMin : step_tokens_, turn);
  return tight ? tight : plan;
}

/// As a repair, with the smallest steps that it may choose: one plan instead of many.
Result<Placement> PlacementLifecycle::plan_room(const SupervisorTurn& turn) const {
  const ReplanInput now = replan_input(turn);
  const bool chooses = living_part(now.before, now.base.devices).replicas.empty();
  const std::int32_t tokens = chooses ? kStepTokensMin : step_tokens_;
  const auto costs = compute_costs(now, turn.options, turn.members)(tokens);
  return make_room(now, [&](ReplanInput after) -> Status {
    after.base.compute = costs;
    if (repair_placement(after)) return {};
    const auto tight = plan_tight(std::move(after), repair_placement, tokens, turn);
    return tight ? Status() : tight.error();
  });
}

/// Gently first: spare copies go before a drain is called off, and before a node that has just
/// failed is asked again; replicas go last.
void PlacementLifecycle::repair(SupervisorTurn& turn) {
  if (still_impossible(turn)) return;
  auto placement = plan_repair({}, turn);
  if (!placement)
    if (auto fewer = plan_room(turn)) {
      turn.record("placement",
                  "Spare copies of experts are given up, since those that were lost "
                  "find no other room.");
      return let_go_first(std::move(*fewer), turn);
    }
  if (!placement && !replan_input(turn).leaving.empty()) {
    fail_drains(placement.error(), turn);
    placement = plan_repair({}, turn);
  }
  if (!placement) {
    placement = plan_repair({turn.now, {}}, turn);
    if (!placement) return begin_again(turn);
  }
  take_steps(*placement, turn);
  load(std::move(placement->placement), turn);
}

/// Of replicas that live: whose end helps most where steps lack memory, then the newest.
std::vector<std::uint32_t> PlacementLifecycle::order_of_ends(ReplanInput input,
                                                             const SupervisorTurn& turn) const {
  input.base.compute.reset();
  const auto whole = repair_placement(input);  // as it would be if steps took nothing
  const Placement& placement = whole ? *whole : input.before;
  input.base.compute = compute_costs(input, turn.options, turn.members)(step_tokens_);
  const auto lacking = accelerators_lacking(input.base, placement);
  std::map<std::uint32_t, std::uint64_t> lacks;
  for (const auto& shard : input.before.shards)
    if (const auto its = lacking.find(shard.device); its != lacking.end())
      lacks[shard.replica] = std::max(lacks[shard.replica], its->second);
  std::vector<std::uint32_t> order;
  for (const auto& replica : input.before.replicas) order.push_back(replica.id);
  std::ranges::sort(order, std::greater(), [&](auto id) { return std::pair(lacks[id], id); });
  return order;
}

/// Replicas that serve nobody while experts lack may take the room of these, or have larger steps
/// than there is memory for. As few as will do; those that stay keep their caches and steps.
void PlacementLifecycle::begin_again(SupervisorTurn& turn) {
  ReplanInput input = replan_input(turn);
  input.before = living_part(input.before, input.base.devices);
  const std::vector<std::uint32_t> order = order_of_ends(input, turn);
  const auto without = [&](std::size_t count) {
    Placement fewer = input.before;
    const std::set<std::uint32_t> gone(order.begin(),
                                       order.begin() + static_cast<std::ptrdiff_t>(count));
    std::erase_if(fewer.replicas, [&](const auto& r) { return gone.contains(r.id); });
    std::erase_if(fewer.shards, [&](const auto& s) { return gone.contains(s.replica); });
    return fewer;
  };
  const auto repaired = [&](std::size_t count) {
    ReplanInput after = input;
    after.before = without(count);
    return repair_of(std::move(after), turn);
  };
  std::size_t low = 0, high = order.size();  // the fewest that help are above low, up to high
  if (const auto plan = repaired(high); !plan)
    return impossible(plan_repair(kNobodyOut, turn) ? kept_out(turn) : plan.error(), turn);
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    (repaired(middle) ? high : low) = middle;
  }
  const std::string who = high == order.size() ? "The replicas"
                                               : std::to_string(high) + " of the " +
                                                     std::to_string(order.size()) + " replicas";
  turn.record("placement", who +
                               " begin again, since the experts that were lost find no room beside "
                               "them and what they compute with.");
  let_go_first(without(high), turn);
}

PlacementLifecycle::Situation PlacementLifecycle::situation(const SupervisorTurn& turn) const {
  const ReplanInput now = replan_input(turn);
  Situation s{now.base.devices, now.closed, replan_input(turn, {turn.now, {}}).closed,
              now.leaving,      {},         now.before};
  for (const auto& [id, member] : turn.members.all())
    s.members.emplace_back(id, member.incarnation, member.state, member.closed_reason);
  return s;
}

/// There is no plan, and planning takes long: not again before something changes.
void PlacementLifecycle::impossible(const Error& error, SupervisorTurn& turn) {
  told_.impossible.emplace(situation(turn), error);
  cannot(error, turn);
}

bool PlacementLifecycle::still_impossible(SupervisorTurn& turn) {
  if (told_.impossible && told_.impossible->first == situation(turn)) {
    cannot(told_.impossible->second, turn);
    return true;
  }
  told_.impossible.reset();
  return false;
}

/// A version in which something ends and nothing begins: what it lets go is free once that is
/// retired.
void PlacementLifecycle::let_go_first(Placement placement, SupervisorTurn& turn) {
  load(std::move(placement), turn);
  room_.made_by = versions_.pending()->version;
}

/// Whether a version that serves can be had though that member loads nothing.
bool PlacementLifecycle::can_do_without(NodeId node, SupervisorTurn& turn) const {
  if (versions_.serves()) return true;
  const LeftOut out{{}, node};
  return versions_.active() ? plan_repair(out, turn).ok() : plan_first(out, turn).ok();
}

}  // namespace troupe
