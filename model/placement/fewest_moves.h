#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model/placement/slot_changes.h"
#include "runtime/placement.h"

namespace troupe {

struct FewestMoves {
  LayerExperts layout;  ///< as good as the computed one, slots ordered by (expert, device)
  SlotChanges changes;  ///< from what is there: `added` are the copies that must move
};

/// Renames the devices of a computed layout so that as few copies move as can be. Devices of one
/// node with equal numbers of slots are interchangeable, and so are nodes whose devices have equal
/// numbers of slots: loads, node spread and slot counts stay what they were. Exact among those.
/// Devices of different `kinds` (default 0) are not interchangeable.
FewestMoves fewest_moves(const LayerExperts& current, const LayerExperts& computed,
                         const std::map<DeviceRef, std::int32_t>& kinds = {});

}  // namespace troupe
