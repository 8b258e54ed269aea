#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/placement.h"

namespace troupe {

/// Which devices hold a copy of each expert under one version of the placement. Immutable.
class ExpertRoutes {
 public:
  explicit ExpertRoutes(const Placement& placement);

  PlacementVersion version() const { return version_; }
  /// In rising order; empty when the layer or the expert is unknown.
  const std::vector<DeviceRef>& copies(std::int32_t layer, std::int32_t expert) const;
  /// All that hold a copy of anything.
  const std::set<DeviceRef>& devices() const { return devices_; }

 private:
  PlacementVersion version_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<DeviceRef>> copies_;
  std::set<DeviceRef> devices_;
};

/// What the choice among an expert's copies goes by.
struct CopyView {
  const DeviceRef& self;                           ///< the asker's own device
  const std::set<DeviceRef>& excluded;             ///< refused, or cannot be reached
  const std::set<DeviceRef>& avoided;              ///< only if nobody else has it
  const std::map<DeviceRef, std::uint64_t>& load;  ///< what the asker waits for; else nothing
};

/// The copy to ask: the one on the asker's own device, which costs no journey; else the one that
/// the asker waits for least, ties by `turn`, so that successive questions spread over the copies.
/// None when no copy is left.
std::optional<DeviceRef> choose_copy(const std::vector<DeviceRef>& copies, std::uint64_t turn,
                                     const CopyView& view);

}  // namespace troupe
