#include "model/expert_set.h"

namespace troupe {

ExpertSet::ExpertSet(PlacementVersion version, Map experts)
    : version_(version), experts_(std::move(experts)) {
  for (const auto& [key, weights] : experts_) {
    const auto layer = static_cast<std::size_t>(key.layer);
    const auto expert = static_cast<std::size_t>(key.expert);
    if (index_.size() <= layer) index_.resize(layer + 1);
    if (index_[layer].size() <= expert) index_[layer].resize(expert + 1);
    index_[layer][expert] = weights.get();
  }
}

}  // namespace troupe
