#include "model/placement/layout_measures.h"

#include <algorithm>
#include <map>

namespace troupe {

std::int64_t experts_surviving_any_node_loss(const std::vector<LayerExperts>& layers) {
  std::int64_t surviving = 0;
  for (const auto& layer : layers) {
    struct Copies {
      NodeId first;
      bool elsewhere = false;
    };
    std::map<std::int32_t, Copies> experts;
    for (const auto& slot : layer.slots) {
      const auto [at, added] = experts.try_emplace(slot.expert, Copies{slot.device.node, false});
      if (!added && at->second.first != slot.device.node) at->second.elsewhere = true;
    }
    surviving += std::count_if(experts.begin(), experts.end(),
                               [](const auto& entry) { return entry.second.elsewhere; });
  }
  return surviving;
}

double load_imbalance(const LayerExperts& layer, const std::vector<float>& weight,
                      const std::vector<DeviceRef>& devices, const std::vector<double>& speeds) {
  const bool uniform = std::all_of(weight.begin(), weight.end(), [](float w) { return w == 0; });
  std::map<std::int32_t, double> copies;
  for (const auto& slot : layer.slots) ++copies[slot.expert];
  std::map<DeviceRef, double> load;
  double total = 0;
  for (const auto& slot : layer.slots) {
    const auto e = static_cast<std::size_t>(slot.expert);
    const double tokens = uniform ? 1 : e < weight.size() ? static_cast<double>(weight[e]) : 0;
    load[slot.device] += tokens / copies[slot.expert];
    total += tokens / copies[slot.expert];
  }
  double speed = 0, longest = 0;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const double s = d < speeds.size() ? speeds[d] : 1;
    speed += s;
    longest = std::max(longest, load[devices[d]] / s);
  }
  return total > 0 && speed > 0 ? longest / (total / speed) : 1;
}

}  // namespace troupe
