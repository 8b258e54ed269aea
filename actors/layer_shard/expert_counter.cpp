#include "actors/layer_shard/expert_counter.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {

ExpertCounter::ExpertCounter(std::int32_t experts) : experts_(static_cast<std::size_t>(experts)) {
  assert(experts >= 0);
}

void ExpertCounter::add(std::int32_t layer, std::span<const std::int32_t> expert_ids) {
  std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(layer);
  if (layers_.size() <= at) layers_.resize(at + 1);
  std::vector<std::uint32_t>& tokens = layers_[at];
  if (tokens.size() < experts_) tokens.resize(experts_);
  for (const std::int32_t id : expert_ids) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= tokens.size()) tokens.resize(index + 1);
    ++tokens[index];
  }
}

std::optional<ExpertCounts> ExpertCounter::take() {
  ExpertCounts counts;
  std::lock_guard lock(mutex_);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    std::vector<std::uint32_t>& tokens = layers_[layer];
    if (std::ranges::none_of(tokens, [](std::uint32_t n) { return n > 0; })) continue;
    counts.layers.push_back({static_cast<std::int32_t>(layer), tokens});
    std::ranges::fill(tokens, 0);
  }
  return counts.layers.empty() ? std::nullopt : std::optional(std::move(counts));
}

}  // namespace troupe
