#include "model/expert_set.h"

#include <atomic>

namespace troupe {
namespace {

std::atomic<std::uint64_t> sets_made{0};

}  // namespace

ExpertSet::ExpertSet(PlacementVersion version, Map experts)
    : version_(version), id_(++sets_made), experts_(std::move(experts)) {
  for (const auto& [key, weights] : experts_) {
    const auto layer = static_cast<std::size_t>(key.layer);
    const auto expert = static_cast<std::size_t>(key.expert);
    if (index_.size() <= layer) {
      index_.resize(layer + 1);
      counts_.resize(layer + 1);
    }
    ++counts_[layer];
    if (index_[layer].size() <= expert) index_[layer].resize(expert + 1);
    index_[layer][expert] = weights.get();
  }
}

}  // namespace troupe
