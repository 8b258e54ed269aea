#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "model/placement/plan_placement.h"

namespace troupe {

/// The routed experts that a node still has in memory, placed there or not, by layer.
using ExpertsHeld = std::map<std::int32_t, std::set<std::int32_t>>;

/// The cluster as it is now, and what is in force.
struct ReplanInput {
  PlacementInput base;  ///< `devices`: all that live; `version`: the new one. `kept` is not read.
  Placement before;     ///< its devices may be gone; may be empty
  std::set<DeviceRef> closed;   ///< they keep what they have and take nothing new
  std::set<DeviceRef> leaving;  ///< they take nothing new, and the goal gives them nothing
  std::map<NodeId, ExpertsHeld> held;
  std::map<NodeId, std::uint64_t> tier_bytes;  ///< what a node offers for the second tier
  std::int32_t num_groups = 1;                 ///< gate groups of a layer
  /// Tokens of each expert lately, by layer; a layer that is missing counts as even.
  std::map<std::int32_t, std::vector<float>> load;
  /// These layers get a new layout by their load; the others are only evened out.
  std::set<std::int32_t> balance_layers;
  /// What steps of replicas that live take, for survival_of(), if it is not `base.compute`.
  std::optional<ComputeCosts> living_compute;
};

/// What of a placement lives on these devices: replicas with all their shards, and copies.
Placement living_part(const Placement& placement, const std::vector<PlacementDevice>& devices);

/// Whether requests can be served with it as it is: a replica is there and each expert has a copy.
bool can_serve(const Placement& placement, const ModelCosts& model);

/// The least that has to be done so that requests can be served again: every expert that has no
/// copy gets one, on a node that holds it in memory if there is one, and if there is no replica,
/// one is made. With `base.compute` there is room to compute as well, of replicas that live too, on
/// all devices or with `!base.cpus_compute` on accelerators.
/// Errors: kResourceExhausted says how many bytes are missing where.
Result<Placement> repair_placement(const ReplanInput& input);

/// Whether what lacks in `before` finds room.
using Repairs = std::function<Status(const ReplanInput&)>;
/// Where a repair finds no room: `before`, as far as it lives, without as many spare copies of
/// experts as it takes until it does; never without an expert's last one. A step of its own: the
/// memory is free once that version has been retired. Errors: kResourceExhausted when all spare
/// copies are not enough.
Result<Placement> make_room(const ReplanInput& input, const Repairs& repairs);
/// The same as repair_placement() sees it.
Result<Placement> make_room(const ReplanInput& input);

/// Where the cluster should get to from here: as many replicas as it is to have, experts spread by
/// their load with --redundant-experts copies more, the second tier, nothing on devices that leave.
/// Keeps what it can: living replicas stay where they are, and the fewest copies move.
Result<Placement> goal_placement(const ReplanInput& input);

/// What the loss of each node would mean.
struct Survival {
  std::vector<NodeId> at_once;      ///< a replica goes on and every expert is in another's memory
  std::vector<NodeId> with_reload;  ///< the others have room, but files must be read first
  std::vector<NodeId> not_at_all;   ///< until another node comes
};
/// Of `input.before`, as it lives on `input.base.devices`.
Survival survival_of(const ReplanInput& input);

}  // namespace troupe
