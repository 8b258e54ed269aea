#pragma once

#include <cstdint>
#include <vector>

#include "runtime/placement.h"

namespace troupe {

/// Spreads num_experts + redundant copies of every layer over the devices (ordered, at least one):
/// - each device gets the floor or the ceiling of copies / devices, and layers take turns in who
/// gets
///   the ceiling;
/// - first copies are contiguous runs, in the order of the devices: experts of a gate group lie
/// together;
/// - a further copy goes to an expert with the fewest copies, off the devices that have one, and
/// off
///   their nodes where that can be.
/// Copies beyond num_experts * devices would have to lie beside another of the same expert, where
/// they are good for nothing: they are left out.
std::vector<LayerExperts> spread_experts(const std::vector<std::int32_t>& layers,
                                         std::int32_t num_experts, std::int32_t redundant,
                                         const std::vector<DeviceRef>& devices);

}  // namespace troupe
