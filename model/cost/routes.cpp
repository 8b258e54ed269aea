#include "model/cost/routes.h"

#include <algorithm>
#include <cmath>

namespace troupe {

LayerRoutes::LayerRoutes(const LayerExperts& layer, const ExpertChances& chances,
                         const std::vector<DeviceRef>& askers) {
  std::vector<std::vector<std::size_t>> copies(chances.size());  // slots of each expert
  for (std::size_t i = 0; i < layer.slots.size(); ++i)
    copies[static_cast<std::size_t>(layer.slots[i].expert)].push_back(i);
  for (const ExpertSlot& slot : layer.slots) parts_[slot.device].log_unasked.push_back(0);
  for (const DeviceRef& asker : askers) parts_[asker];
  for (const DeviceRef& asker : askers) ask(asker, layer, chances, copies);
}

void LayerRoutes::ask(const DeviceRef& asker, const LayerExperts& layer,
                      const ExpertChances& chances,
                      const std::vector<std::vector<std::size_t>>& copies) {
  std::vector<double> chance(layer.slots.size());  // that a row asks the slot
  for (std::size_t e = 0; e < copies.size(); ++e) {
    const auto own = std::find_if(copies[e].begin(), copies[e].end(),
                                  [&](std::size_t i) { return layer.slots[i].device == asker; });
    for (const std::size_t i : copies[e])
      chance[i] = own == copies[e].end() ? chances[e] / static_cast<double>(copies[e].size())
                                         : (i == *own ? chances[e] : 0);
  }
  struct Asked {
    std::size_t slots = 0;  // seen so far
    double pairs = 0, log_none = 0;
  };
  std::map<DeviceRef, Asked> asked;
  for (std::size_t i = 0; i < layer.slots.size(); ++i) {
    Asked& a = asked[layer.slots[i].device];
    const double log_not = std::log1p(-chance[i]);  // minus infinity where every row asks
    parts_[layer.slots[i].device].log_unasked[a.slots++] += log_not;
    a.pairs += chance[i];
    a.log_none += log_not;
  }
  Part& from = parts_[asker];
  for (const auto& [device, a] : asked) {
    Part& to = parts_[device];
    to.pairs += a.pairs;
    if (device == asker) continue;
    const double rows = 1 - std::exp(a.log_none);
    const bool near = device.node == asker.node;
    (near ? from.near_rows_out : from.rows_out) += rows;
    (near ? to.near_rows_in : to.rows_in) += rows;
    (near ? to.near_pairs_out : to.pairs_out) += a.pairs;
    (near ? from.near_pairs_in : from.pairs_in) += a.pairs;
    from.questions += rows;
  }
}

double LayerRoutes::hits(const Part& part, double rows) {
  double hits = 0;
  for (const double log : part.log_unasked) hits += 1 - std::exp(rows * log);
  return hits;
}

WireBytes LayerRoutes::wire(const Part& p, double rows, double row_bytes) {
  const double bytes = rows * row_bytes;
  return {bytes * (p.rows_out + p.pairs_out), bytes * (p.rows_in + p.pairs_in),
          bytes * (p.near_rows_out + p.near_pairs_out), bytes * (p.near_rows_in + p.near_pairs_in)};
}

double LayerRoutes::imbalance() const {
  double most = 0, sum = 0, devices = 0;
  for (const auto& [device, part] : parts_) {
    if (part.log_unasked.empty()) continue;
    most = std::max(most, part.pairs);
    sum += part.pairs;
    ++devices;
  }
  return sum > 0 ? most * devices / sum : 1;
}

bool LayerRoutes::leaves_device() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto& p) { return p.second.questions > 0; });
}

}  // namespace troupe
