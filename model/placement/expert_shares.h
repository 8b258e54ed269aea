#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

struct ShareInput {
  std::size_t layers = 0;     ///< that have experts
  std::size_t experts = 0;    ///< of a layer
  std::size_t redundant = 0;  ///< further copies of a layer
  /// Copies that each device has room for, all layers together.
  std::vector<std::uint64_t> room;
};

/// How many copies of a layer's experts each device is to have.
struct ExpertShares {
  std::size_t copies = 0;                    ///< of a layer, all devices together
  std::vector<std::vector<std::size_t>> of;  ///< [layer][device]; empty when it does not fit
  std::uint64_t lacking = 0;                 ///< copies that find no room, all layers together
};

/// As even as there is room: where every device has room for it, the floor or the ceiling of
/// copies / devices in each layer and over all of them, and layers take turns in who gets the
/// ceiling. Else what the small ones cannot take goes to the others. No device gets more copies of
/// a layer than it has experts: beyond `experts` on each device that has room for any, further
/// copies are left out.
ExpertShares expert_shares(const ShareInput& input);

}  // namespace troupe
