#pragma once

#include <cstdint>
#include <vector>

#include "runtime/placement.h"

namespace troupe {

/// How many (layer, expert) keep a copy whichever single node dies: those with copies on two or
/// more nodes.
std::int64_t experts_surviving_any_node_loss(const std::vector<LayerExperts>& layers);

/// How long the device that is done last takes over what all of `devices` would take if the work
/// were shared perfectly, when every copy of an expert takes an equal share of its tokens: 1 is
/// perfect. `weight` as a row of BalanceInput: empty or all zero is uniform. `speeds` of the
/// devices; empty: equal. Experts without a copy count nowhere; without load or devices it is 1.
double load_imbalance(const LayerExperts& layer, const std::vector<float>& weight,
                      const std::vector<DeviceRef>& devices,
                      const std::vector<double>& speeds = {});

}  // namespace troupe
