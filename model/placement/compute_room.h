#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "model/placement/plan_placement.h"

namespace troupe {

/// What computing takes on a device beside weights and caches, in bytes: upper bounds.
struct ComputeCosts {
  std::int64_t rows = 0;   ///< tokens of a step
  std::int32_t top_k = 0;  ///< experts of a token
  /// A shard of the layers from the first to the last, which is included.
  std::function<std::uint64_t(std::int32_t first, std::int32_t last)> shard;
  /// The routed experts of a device, for so many pairs of a row and an expert that wait.
  std::function<std::uint64_t(std::int64_t pairs)> group;
};

/// What computing takes on each device that the placement uses.
std::map<DeviceRef, std::uint64_t> compute_bytes(const PlacementInput& input,
                                                 const Placement& placement,
                                                 const ComputeCosts& costs);

/// Steps are made smaller down to this where memory to compute with lacks.
inline constexpr std::int32_t kStepTokensMin = 8;

/// What steps of so many tokens take.
using CostsOfSteps = std::function<ComputeCosts(std::int32_t tokens)>;

/// The placement that `plan` makes of `input`, if every device has room for it and for computing.
/// Where that is what it takes, caches whose size nobody has given are made smaller, and then
/// steps, down to `least_tokens`: `input.engine` says so then. kResourceExhausted says what lacks
/// how much for what was asked for.
Result<Placement> plan_to_compute(PlacementInput& input, const CostsOfSteps& costs,
                                  const std::function<Result<Placement>()>& plan,
                                  std::int32_t least_tokens);

}  // namespace troupe
