#pragma once

#include <cstdint>
#include <vector>

#include "runtime/placement.h"
#include "runtime/result.h"

namespace troupe {

struct BalanceInput {
  std::vector<std::int32_t> layers;  ///< those with routed experts, ascending
  std::int32_t num_experts = 0;      ///< of a layer
  std::int32_t num_groups = 1;       ///< gate groups of a layer
  std::int32_t copies = 0;           ///< of all experts of a layer together: >= num_experts
  std::vector<DeviceRef> devices;    ///< in any order; nodes may have different numbers of them
  /// How fast each of `devices` is beside the others; empty: equal. A device of half the speed is
  /// given half the load, at the same number of slots.
  std::vector<double> speeds;
  /// Tokens: [index into layers][expert]; empty, or an empty or all-zero row: uniform.
  std::vector<std::vector<float>> weight;
  /// What the devices have now, in any order; may name devices that are gone. The answer is the
  /// layout that differs least from it. Empty: nothing yet.
  std::vector<LayerExperts> current;
  /// How much longer than with the layout below, as a share, the last device of a layer may take if
  /// that moves fewer copies: the current layout is then kept and swaps are made in it only until
  /// it is that good. 0.05 spares most moves; 0 always takes the layout below.
  double tolerance = 0;
};

/// Places `copies` copies of every layer's experts so that devices are loaded evenly. Pure and
/// deterministic, whatever the order of the devices.
///
/// The published balancer (eplb.h) lays them out where its sizes divide; otherwise the same steps
/// without groups (replicate the heaviest share, pack the heaviest first) on any sizes. Then:
/// - no device has two copies of an expert; copies beyond num_experts * devices are left out, and
///   an expert has at most one copy a device, the others go to the next heaviest;
/// - a device has the floor or the ceiling of copies / devices slots, over all layers together too;
/// - copies of an expert lie on different nodes as far as swaps at the same slot counts allow it;
/// - equal devices and equal nodes are named so that the fewest copies move (fewest_moves.h).
///
/// Errors: kInvalidArgument for sizes, weights or speeds that make no sense.
Result<std::vector<LayerExperts>> balance_experts(const BalanceInput& input);

}  // namespace troupe
