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

 private:
  PlacementVersion version_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<DeviceRef>> copies_;
};

/// The copy to ask: one on the asker's own device, else on its node, else the `turn`-th of the
/// others, so that successive questions spread over the copies. `excluded` are devices that
/// answered NotHere or cannot be reached. None when no copy is left.
std::optional<DeviceRef> choose_copy(const std::vector<DeviceRef>& copies, const DeviceRef& self,
                                     std::uint64_t turn, const std::set<DeviceRef>& excluded);

}  // namespace troupe
