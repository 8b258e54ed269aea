#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

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
/// change makes a new set, which shares the weights that stay.
class ExpertSet {
 public:
  using Map = std::map<ExpertKey, std::shared_ptr<const ExpertWeights>>;

  ExpertSet() = default;
  ExpertSet(PlacementVersion version, Map experts)
      : version_(version), experts_(std::move(experts)) {}

  PlacementVersion version() const { return version_; }
  const Map& experts() const { return experts_; }
  std::size_t size() const { return experts_.size(); }
  bool has(ExpertKey key) const { return experts_.contains(key); }
  /// Null when the expert is not here.
  const ExpertWeights* find(ExpertKey key) const {
    const auto it = experts_.find(key);
    return it == experts_.end() ? nullptr : it->second.get();
  }

 private:
  PlacementVersion version_;
  Map experts_;
};

}  // namespace troupe
