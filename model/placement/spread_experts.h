#pragma once

#include <cstdint>
#include <vector>

#include "model/placement/expert_shares.h"
#include "runtime/placement.h"

namespace troupe {

/// Deals out the copies of every layer's experts by `shares` (expert_shares.h) to the devices,
/// which are ordered:
/// - first copies are contiguous runs, in the order of the devices: experts of a gate group lie
///   together;
/// - a further copy goes to an expert with the fewest copies, off the devices that have one, and
///   off their nodes where that can be.
std::vector<LayerExperts> spread_experts(const std::vector<std::int32_t>& layers,
                                         std::int32_t num_experts, const ExpertShares& shares,
                                         const std::vector<DeviceRef>& devices);

}  // namespace troupe
