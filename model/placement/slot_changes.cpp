#include "model/placement/slot_changes.h"

#include <algorithm>
#include <iterator>

namespace troupe {
namespace {

bool before(const ExpertSlot& a, const ExpertSlot& b) {
  return a.expert != b.expert ? a.expert < b.expert : a.device < b.device;
}

}  // namespace

std::vector<ExpertSlot> ordered_slots(std::vector<ExpertSlot> slots) {
  std::sort(slots.begin(), slots.end(), before);
  return slots;
}

SlotChanges slot_changes(const LayerExperts& from, const LayerExperts& to) {
  const auto old_slots = ordered_slots(from.slots), new_slots = ordered_slots(to.slots);
  SlotChanges changes;
  std::set_difference(new_slots.begin(), new_slots.end(), old_slots.begin(), old_slots.end(),
                      std::back_inserter(changes.added), before);
  std::set_difference(old_slots.begin(), old_slots.end(), new_slots.begin(), new_slots.end(),
                      std::back_inserter(changes.removed), before);
  return changes;
}

}  // namespace troupe
