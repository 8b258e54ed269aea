#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "model/placement/plan_placement.h"

namespace troupe {

/// What computing takes on each device that the placement uses.
std::map<DeviceRef, std::uint64_t> compute_bytes(const PlacementInput& input,
                                                 const Placement& placement,
                                                 const ComputeCosts& costs);
/// Of a device with so many of a layer's copies.
std::uint64_t group_bytes(const ComputeCosts& costs, std::size_t replicas, std::int64_t slots,
                          std::int64_t copies);

/// A device lacks so much of the bytes that computing takes there.
Error lacks_room_to_compute(const ComputeCosts& costs, const DeviceRef& device, std::uint64_t bytes,
                            std::uint64_t lacking);

/// Whether computing has room beside what is placed, with what `input.compute` says. A CPU device's
/// steps take memory of the host, and may take more than is planned with: `cpus` says whether they
/// are asked as well. Errors: kResourceExhausted, as above, of the one that lacks most.
Status room_to_compute(const PlacementInput& input, const Placement& placement, bool cpus = true);
/// What accelerators lack to compute with, those that lack something.
std::map<DeviceRef, std::uint64_t> accelerators_lacking(const PlacementInput& input,
                                                        const Placement& placement);
/// The one that lacks most.
std::uint64_t accelerators_lack(const PlacementInput& input, const Placement& placement);

/// Steps are made smaller down to this where memory to compute with lacks.
inline constexpr std::int32_t kStepTokensMin = 8;

/// What steps of so many tokens take.
using CostsOfSteps = std::function<ComputeCosts(std::int32_t tokens)>;

/// The placement that `plan` makes of `input`, if every device has room for it and for computing:
/// plan_placement() says how `input.compute` is heeded. Where there is no room for all replicas,
/// steps are made smaller, down to `least_tokens`, if all replicas together then compute as many
/// rows at a time as the fewer that have room for larger ones. `input.engine` says what they are
/// and `input.compute`, which stays set, what they take.
/// kResourceExhausted says what lacks how much for the smallest that were tried.
Result<Placement> plan_to_compute(PlacementInput& input, const CostsOfSteps& costs,
                                  const std::function<Result<Placement>()>& plan,
                                  std::int32_t least_tokens);

}  // namespace troupe
