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

/// The placement that `plan` makes of `input`, if every device has room for it and for computing.
/// Caches whose size nobody has given are made smaller where that is what it takes:
/// `input.engine.kv_cache_memory` is their size then. kResourceExhausted says what lacks how much.
Result<Placement> plan_to_compute(PlacementInput& input, const ComputeCosts& costs,
                                  const std::function<Result<Placement>()>& plan);

}  // namespace troupe
