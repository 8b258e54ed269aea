#include "actors/layer_shard/expert_routes.h"

#include <algorithm>

namespace troupe {

ExpertRoutes::ExpertRoutes(const Placement& placement) : version_(placement.version) {
  for (const auto& layer : placement.experts)
    for (const auto& slot : layer.slots) copies_[{layer.layer, slot.expert}].push_back(slot.device);
  for (auto& [key, devices] : copies_) std::sort(devices.begin(), devices.end());
}

const std::vector<DeviceRef>& ExpertRoutes::copies(std::int32_t layer, std::int32_t expert) const {
  static const std::vector<DeviceRef> none;
  const auto it = copies_.find({layer, expert});
  return it == copies_.end() ? none : it->second;
}

std::optional<DeviceRef> choose_copy(const std::vector<DeviceRef>& copies, const DeviceRef& self,
                                     std::uint64_t turn, const std::set<DeviceRef>& excluded) {
  std::vector<DeviceRef> near, far;
  for (const auto& device : copies) {
    if (excluded.contains(device)) continue;
    if (device == self) return device;
    (device.node == self.node ? near : far).push_back(device);
  }
  const auto& from = near.empty() ? far : near;
  if (from.empty()) return std::nullopt;
  return from[turn % from.size()];
}

}  // namespace troupe
