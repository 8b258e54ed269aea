#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/ids.h"

namespace troupe {

struct ExpertWeights;

/// A routed expert of a layer.
struct ExpertKey {
  std::int32_t layer = 0;
  std::int32_t expert = 0;
  constexpr auto operator<=>(const ExpertKey&) const = default;
};

/// The experts that a device hosts under one version of the placement. Immutable once published: a
/// change makes a new set, which shares the weights that stay. What it finds is at a place of its
/// own by layer and expert.
class ExpertSet {
 public:
  using Map = std::map<ExpertKey, std::shared_ptr<const ExpertWeights>>;

  ExpertSet() = default;
  ExpertSet(PlacementVersion version, Map experts);

  PlacementVersion version() const { return version_; }
  /// Which of the process's sets it is, copies of one being the same; 0: it is empty.
  std::uint64_t id() const { return id_; }
  const Map& experts() const { return experts_; }
  std::size_t size() const { return experts_.size(); }
  /// How many of a layer's experts are here.
  std::int32_t count(std::int32_t layer) const {
    const auto at = static_cast<std::size_t>(layer);
    return at < counts_.size() ? counts_[at] : 0;
  }
  bool has(ExpertKey key) const { return find(key) != nullptr; }
  /// Null when the expert is not here.
  const ExpertWeights* find(ExpertKey key) const {
    const auto layer = static_cast<std::size_t>(key.layer);
    if (layer >= index_.size()) return nullptr;
    const auto expert = static_cast<std::size_t>(key.expert);
    return expert < index_[layer].size() ? index_[layer][expert] : nullptr;
  }

 private:
  PlacementVersion version_;
  std::uint64_t id_ = 0;
  Map experts_;                                           ///< keeps them alive
  std::vector<std::vector<const ExpertWeights*>> index_;  ///< [layer][expert]
  std::vector<std::int32_t> counts_;                      ///< [layer]
};

}  // namespace troupe
