#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model/placement/expert_shares.h"
#include "model/placement/model_costs.h"
#include "runtime/engine_options.h"
#include "runtime/ids.h"
#include "runtime/result.h"

namespace troupe {

/// The layers with routed experts, ascending.
std::vector<std::int32_t> expert_layers(const ModelCosts& model);
/// What the shares would be of a cluster with that room, in bytes on each device.
ExpertShares shares_of(const ModelCosts& model, std::int32_t redundant,
                       const std::map<DeviceRef, std::uint64_t>& room);
/// Says what is missing where; no share fits in that room.
Error experts_lack_room(const ModelCosts& model, const EngineOptions& engine,
                        const std::map<DeviceRef, std::uint64_t>& room);

}  // namespace troupe
