#pragma once

#include <cstdint>
#include <vector>

#include "runtime/placement.h"

namespace troupe {

/// How many (layer, expert) keep a copy whichever single node dies: those with copies on two or
/// more nodes.
std::int64_t experts_surviving_any_node_loss(const std::vector<LayerExperts>& layers);

/// The load of the most loaded device over the mean of `devices`, when every copy of an expert takes
/// an equal share of its tokens: 1 is perfect. `weight` as in BalanceInput; empty or all zero:
/// uniform. Devices without a slot count as idle; without devices or slots it is 1.
double load_imbalance(const LayerExperts& layer, const std::vector<float>& weight,
                      const std::vector<DeviceRef>& devices);

}  // namespace troupe
