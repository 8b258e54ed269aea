#include "actors/layer_shard/expert_routes.h"

#include <algorithm>
#include <limits>

namespace troupe {

ExpertRoutes::ExpertRoutes(const Placement& placement) : version_(placement.version) {
  std::size_t slots = 0;
  for (const auto& layer : placement.experts) {
    layers_ = std::max(layers_, layer.layer + 1);
    slots += layer.slots.size();
    for (const auto& slot : layer.slots) {
      experts_ = std::max(experts_, slot.expert + 1);
      devices_.push_back(slot.device);
    }
  }
  std::sort(devices_.begin(), devices_.end());
  devices_.erase(std::unique(devices_.begin(), devices_.end()), devices_.end());
  // A counting sort by layer and expert.
  first_.resize(place_of(layers_, 0) + 2);
  for (const auto& layer : placement.experts)
    for (const auto& slot : layer.slots) ++first_[place_of(layer.layer, slot.expert) + 2];
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  copies_.resize(slots);
  for (const auto& layer : placement.experts)
    for (const auto& slot : layer.slots)
      copies_[first_[place_of(layer.layer, slot.expert) + 1]++] = *number_of(slot.device);
  first_.pop_back();
  for (std::size_t i = 0; i + 1 < first_.size(); ++i)
    std::sort(copies_.begin() + first_[i], copies_.begin() + first_[i + 1]);
}

std::optional<std::uint32_t> ExpertRoutes::number_of(const DeviceRef& device) const {
  const auto it = std::lower_bound(devices_.begin(), devices_.end(), device);
  if (it == devices_.end() || *it != device) return std::nullopt;
  return static_cast<std::uint32_t>(it - devices_.begin());
}

std::size_t ExpertRoutes::place_of(std::int32_t layer, std::int32_t expert) const {
  return static_cast<std::size_t>(layer) * static_cast<std::size_t>(experts_) +
         static_cast<std::size_t>(expert);
}

std::span<const std::uint32_t> ExpertRoutes::copies(std::int32_t layer, std::int32_t expert) const {
  if (layer < 0 || layer >= layers_ || expert < 0 || expert >= experts_) return {};
  const std::size_t place = place_of(layer, expert);
  return std::span(copies_).subspan(first_[place], first_[place + 1] - first_[place]);
}

ExpertRanks expert_ranks(const ExpertRoutes& routes, std::span<const DeviceRef> rank_devices) {
  ExpertRanks ranks(routes.layers(), routes.experts());
  std::vector<std::optional<std::uint32_t>> numbers;
  for (const DeviceRef& device : rank_devices) numbers.push_back(routes.number_of(device));
  std::vector<std::uint32_t> able;
  for (std::int32_t layer = 0; layer < routes.layers(); ++layer)
    for (std::int32_t expert = 0; expert < routes.experts(); ++expert) {
      const auto copies = routes.copies(layer, expert);
      able.clear();
      for (std::uint32_t rank = 0; rank < numbers.size(); ++rank)
        if (numbers[rank] && std::binary_search(copies.begin(), copies.end(), *numbers[rank]))
          able.push_back(rank);
      if (!able.empty())
        ranks.set(layer, expert, able[static_cast<std::size_t>(layer + expert) % able.size()]);
    }
  return ranks;
}

std::optional<std::uint32_t> choose_copy(std::span<const std::uint32_t> copies, std::uint64_t turn,
                                         const CopyView& view) {
  for (const std::uint8_t avoided : {0, 1}) {
    const auto may = [&](std::uint32_t d) {
      return view.excluded[d] == 0 && view.avoided[d] == avoided;
    };
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max(), equal = 0;
    for (const std::uint32_t d : copies) {
      if (!may(d)) continue;
      if (d == view.self) return d;
      if (view.load[d] < least) equal = 0;
      least = std::min(least, view.load[d]);
      equal += view.load[d] == least ? 1 : 0;
    }
    if (equal == 0) continue;
    std::uint64_t before = turn % equal;
    for (const std::uint32_t d : copies)
      if (may(d) && view.load[d] == least && before-- == 0) return d;
  }
  return std::nullopt;
}

}  // namespace troupe
