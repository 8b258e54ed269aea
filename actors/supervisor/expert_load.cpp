#include "actors/supervisor/expert_load.h"

#include <algorithm>
#include <set>

#include "model/placement/layout_measures.h"

namespace troupe {

void ExpertLoad::add(const ExpertCounts& counts, const ModelCosts& model, TimePoint now) {
  const auto experts = static_cast<std::size_t>(model.num_experts);
  if (now - turned_ >= kHalf) {
    older_ = now - turned_ >= 2 * kHalf ? Layers{} : std::move(newer_);
    newer_.clear();
    turned_ = now;
  }
  for (const auto& layer : counts.layers) {
    const auto number = static_cast<std::size_t>(layer.layer);
    const bool known = number < model.layers.size() && model.layers[number].has_experts;
    if (!known || layer.tokens.size() > experts) continue;
    auto& sums = newer_[layer.layer];
    sums.resize(experts);
    for (std::size_t e = 0; e < layer.tokens.size(); ++e) sums[e] += layer.tokens[e];
  }
}

std::map<std::int32_t, std::vector<float>> ExpertLoad::tokens() const {
  std::map<std::int32_t, std::vector<float>> tokens;
  for (const auto* half : {&older_, &newer_}) {
    for (const auto& [layer, sums] : *half) {
      auto& all = tokens[layer];
      all.resize(std::max(all.size(), sums.size()));
      for (std::size_t e = 0; e < sums.size(); ++e) all[e] += static_cast<float>(sums[e]);
    }
  }
  return tokens;
}

std::uint64_t ExpertLoad::total() const {
  std::uint64_t total = 0;
  for (const auto* half : {&older_, &newer_})
    for (const auto& [layer, sums] : *half)
      for (const std::uint64_t sum : sums) total += sum;
  return total;
}

double imbalance_of(const LayerExperts& layer, const std::vector<float>& tokens) {
  std::set<DeviceRef> devices;
  bool counted = false;
  for (const auto& slot : layer.slots) {
    const auto e = static_cast<std::size_t>(slot.expert);
    devices.insert(slot.device);
    counted = counted || (e < tokens.size() && tokens[e] > 0);
  }
  return counted ? load_imbalance(layer, tokens, {devices.begin(), devices.end()}) : 0;
}

double imbalance_of(const std::vector<LayerExperts>& layers,
                    const std::map<std::int32_t, std::vector<float>>& tokens) {
  double sum = 0;
  std::size_t counted = 0;
  for (const auto& layer : layers) {
    const auto load = tokens.find(layer.layer);
    const double one = load == tokens.end() ? 0 : imbalance_of(layer, load->second);
    sum += one;
    counted += one > 0 ? 1 : 0;
  }
  return counted > 0 ? sum / static_cast<double>(counted) : 0;
}

}  // namespace troupe
