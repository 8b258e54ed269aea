#pragma once

#include <vector>

#include "runtime/placement.h"

namespace troupe {

/// What lies between two layouts of one layer, each ordered by (expert, device).
struct SlotChanges {
  std::vector<ExpertSlot> added;    ///< copies to be loaded
  std::vector<ExpertSlot> removed;  ///< copies to be dropped
  bool empty() const { return added.empty() && removed.empty(); }
};

/// The slots in the order of (expert, device).
std::vector<ExpertSlot> ordered_slots(std::vector<ExpertSlot> slots);

SlotChanges slot_changes(const LayerExperts& from, const LayerExperts& to);

}  // namespace troupe
