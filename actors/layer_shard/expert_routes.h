#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/forward/expert_ranks.h"
#include "runtime/placement.h"

namespace troupe {

/// Which devices hold a copy of each expert under one version of the placement. Immutable. Devices
/// have small numbers here, so that what is known of them lies in arrays.
class ExpertRoutes {
 public:
  /// Layers and experts as a checked placement has them.
  explicit ExpertRoutes(const Placement& placement);

  PlacementVersion version() const { return version_; }
  /// All that hold a copy of anything, in rising order: a device's number is its place here.
  std::span<const DeviceRef> devices() const { return devices_; }
  std::optional<std::uint32_t> number_of(const DeviceRef& device) const;
  std::int32_t layers() const { return layers_; }
  std::int32_t experts() const { return experts_; }
  /// Numbers, in rising order; empty when the layer or the expert is unknown.
  std::span<const std::uint32_t> copies(std::int32_t layer, std::int32_t expert) const;

 private:
  std::size_t place_of(std::int32_t layer, std::int32_t expert) const;

  PlacementVersion version_;
  std::vector<DeviceRef> devices_;
  std::int32_t layers_ = 0, experts_ = 0;
  std::vector<std::uint32_t> first_;   // [layers * experts + 1] where the copies of each begin
  std::vector<std::uint32_t> copies_;  // numbers
};

/// Which of the tensor-parallel ranks on these devices computes each expert. Of several whose
/// devices have it they take turns by its number.
ExpertRanks expert_ranks(const ExpertRoutes& routes, std::span<const DeviceRef> rank_devices);

/// What the choice among an expert's copies goes by; arrays by a device's number.
struct CopyView {
  std::optional<std::uint32_t> self;       ///< the asker's own device, if it has any copy
  std::span<const std::uint8_t> excluded;  ///< refused, or cannot be reached
  std::span<const std::uint8_t> avoided;   ///< only if nobody else has it
  std::span<const std::uint64_t> load;     ///< what the asker waits for
};

/// The copy to ask: the one on the asker's own device, which costs no journey; else the one that
/// the asker waits for least, ties by `turn`, so that successive questions spread over the copies.
/// None when no copy is left.
std::optional<std::uint32_t> choose_copy(std::span<const std::uint32_t> copies, std::uint64_t turn,
                                         const CopyView& view);

}  // namespace troupe
