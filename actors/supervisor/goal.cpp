#include "actors/supervisor/goal.h"

#include <map>

#include "model/placement/slot_changes.h"

namespace troupe {

std::size_t copies_added(const Placement& before, const Placement& after) {
  std::map<std::int32_t, const LayerExperts*> had;
  for (const auto& layer : before.experts) had[layer.layer] = &layer;
  std::size_t added = 0;
  for (const auto& layer : after.experts) {
    const auto old = had.find(layer.layer);
    added += old == had.end() ? layer.slots.size() : slot_changes(*old->second, layer).added.size();
  }
  return added;
}

std::size_t PlacementGoal::moves_pending(const Placement* active) const {
  return state_ == State::kAhead && active ? copies_added(*active, placement_) : 0;
}

}  // namespace troupe
