#include "actors/layer_shard/expert_routes.h"

#include <algorithm>

namespace troupe {

ExpertRoutes::ExpertRoutes(const Placement& placement) : version_(placement.version) {
  for (const auto& layer : placement.experts)
    for (const auto& slot : layer.slots) {
      copies_[{layer.layer, slot.expert}].push_back(slot.device);
      devices_.insert(slot.device);
    }
  for (auto& [key, devices] : copies_) std::sort(devices.begin(), devices.end());
}

const std::vector<DeviceRef>& ExpertRoutes::copies(std::int32_t layer, std::int32_t expert) const {
  static const std::vector<DeviceRef> none;
  const auto it = copies_.find({layer, expert});
  return it == copies_.end() ? none : it->second;
}

std::optional<DeviceRef> choose_copy(const std::vector<DeviceRef>& copies, std::uint64_t turn,
                                     const CopyView& view) {
  std::vector<DeviceRef> least;
  std::uint64_t least_load = 0;
  for (const bool avoided : {false, true}) {
    for (const auto& device : copies) {
      if (view.excluded.contains(device) || view.avoided.contains(device) != avoided) continue;
      if (device == view.self) return device;
      const auto known = view.load.find(device);
      const std::uint64_t load = known == view.load.end() ? 0 : known->second;
      if (least.empty() || load < least_load) {
        least.clear();
        least_load = load;
      }
      if (load == least_load) least.push_back(device);
    }
    if (!least.empty()) return least[turn % least.size()];
  }
  return std::nullopt;
}

}  // namespace troupe
