#include "actors/layer_shard/expert_counter.h"

#include <cassert>
#include <utility>

namespace troupe {

ExpertCounter::ExpertCounter(std::int32_t experts) : experts_(static_cast<std::size_t>(experts)) {
  assert(experts >= 0);
}

void ExpertCounter::add(std::int32_t layer, std::span<const std::int32_t> expert_ids) {
  std::lock_guard lock(mutex_);
  std::vector<std::uint32_t>& tokens = layers_[layer];
  if (tokens.size() < experts_) tokens.resize(experts_);
  for (const std::int32_t id : expert_ids) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= tokens.size()) tokens.resize(index + 1);
    ++tokens[index];
  }
}

std::optional<ExpertCounts> ExpertCounter::take() {
  std::map<std::int32_t, std::vector<std::uint32_t>> taken;
  {
    std::lock_guard lock(mutex_);
    taken.swap(layers_);
  }
  if (taken.empty()) return std::nullopt;
  ExpertCounts counts;
  for (auto& [layer, tokens] : taken) counts.layers.push_back({layer, std::move(tokens)});
  return counts;
}

}  // namespace troupe
