#pragma once

#include <vector>

#include "model/placement/plan_placement.h"

namespace troupe {

/// Devices that can hold no stage, or none and no expert either, with what `compute` asks beside.
struct SmallDevices {
  std::vector<DeviceRef> useless;
  std::vector<DeviceRef> experts_only;  ///< that could hold a stage, if not compute beside it
};
SmallDevices small_devices(const PlacementInput& input);

}  // namespace troupe
