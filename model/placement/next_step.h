#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/placement.h"

namespace troupe {

struct NextStepInput {
  /// What devices hold that live: of a version that nothing is older than, ordered by layer.
  std::vector<LayerExperts> current;
  std::vector<LayerExperts> goal;  ///< every layer that shall have slots
  std::uint64_t expert_bytes = 0;
  std::int32_t max_layers = 1;  ///< that one step may change
  /// That one step may load, all devices together; one copy is always allowed.
  std::uint64_t max_bytes = 0;
  /// Bytes for routed experts on each device; one that is not named has no bound.
  std::map<DeviceRef, std::uint64_t> memory;
};

/// The next placement on the way from `current` to `goal`: changes at most max_layers layers, loads
/// at most max_bytes, and while it and `current` coexist no device holds more than its memory
/// (beyond what it already holds). Layers with experts that have no copy come first, with those
/// experts first; then the others in order. An expert never loses its last copy. Where memory is
/// so tight that nothing can be loaded, spare copies that the goal does not have are dropped first.
///
/// Repeated on its own answer it ends: at the goal, or, where memory has room for no further copy
/// and none is spare, at a layout short of it. Equal to `current` when there is nothing to do.
/// Layers are ordered by number, slots by (expert, device) in the layers that changed.
std::vector<LayerExperts> next_step(const NextStepInput& input);

}  // namespace troupe
