#include "model/placement/next_step.h"

#include <algorithm>
#include <set>

#include "model/placement/slot_changes.h"

namespace troupe {
namespace {

using Slots = std::vector<ExpertSlot>;

/// One layer on its way.
struct LayerWay {
  LayerExperts* layer = nullptr;  // of the next placement
  SlotChanges changes;            // from current to goal
  std::set<std::int32_t> have;    // experts with a copy now
  bool urgent = false;            // an expert of the goal has none
};

class Stepper {
 public:
  explicit Stepper(const NextStepInput& input)
      : input_(input), layers_left_(std::max(input.max_layers, 0)) {
    for (const auto& layer : input.current) next_[layer.layer] = layer;
    for (const auto& layer : input.goal) {
      if (next_.try_emplace(layer.layer, LayerExperts{layer.layer, {}}).second)
        begun_.insert(layer.layer);
    }
    // What is there now stays until the next version serves: only what is added counts.
    for (const auto& [device, bytes] : input.memory) room_[device] = bytes;
    for (const auto& [number, layer] : next_) {
      for (const auto& slot : layer.slots) {
        const auto room = room_.find(slot.device);
        if (room != room_.end()) room->second -= std::min(room->second, input.expert_bytes);
      }
    }
    for (const auto& goal : input.goal) {
      LayerWay way{&next_[goal.layer], slot_changes(next_[goal.layer], goal), {}, false};
      if (way.changes.empty()) continue;
      for (const auto& slot : way.layer->slots) way.have.insert(slot.expert);
      way.urgent = std::any_of(way.changes.added.begin(), way.changes.added.end(),
                               [&](const auto& slot) { return !way.have.contains(slot.expert); });
      ways_.push_back(std::move(way));
    }
    std::stable_sort(ways_.begin(), ways_.end(), [](const LayerWay& a, const LayerWay& b) {
      return a.urgent != b.urgent ? a.urgent : a.layer->layer < b.layer->layer;
    });
  }

  std::vector<LayerExperts> step() {
    for (LayerWay& way : ways_) {
      if (layers_left_ == 0) break;
      if (advance(way)) --layers_left_;
    }
    // Nothing could be loaded or dropped anywhere: spare copies make room for the next step.
    const bool stuck = layers_left_ == std::max(input_.max_layers, 0);
    for (std::size_t i = 0; stuck && i < ways_.size() && layers_left_ > 0; ++i) {
      if (make_room(ways_[i])) --layers_left_;
    }
    std::vector<LayerExperts> result;
    for (auto& [number, layer] : next_) {
      if (!layer.slots.empty() || !begun_.contains(number)) result.push_back(std::move(layer));
    }
    return result;
  }

 private:
  bool has_room(const DeviceRef& device) const {
    const auto room = room_.find(device);
    return room == room_.end() || room->second >= input_.expert_bytes;
  }

  bool may_load() const {
    return loaded_ == 0 || (loaded_ + 1) * input_.expert_bytes <= input_.max_bytes;
  }

  bool load(LayerWay& way, const ExpertSlot& slot) {
    if (!may_load() || !has_room(slot.device)) return false;
    const auto room = room_.find(slot.device);
    if (room != room_.end()) room->second -= input_.expert_bytes;
    ++loaded_;
    way.layer->slots.push_back(slot);
    return true;
  }

  static void drop(LayerWay& way, const ExpertSlot& slot) {
    auto& slots = way.layer->slots;
    slots.erase(std::find(slots.begin(), slots.end(), slot));
  }

  static bool has_other_copy(const LayerWay& way, const ExpertSlot& slot) {
    return std::any_of(way.layer->slots.begin(), way.layer->slots.end(), [&](const auto& other) {
      return other.expert == slot.expert && other.device != slot.device;
    });
  }

  /// Loads what may be loaded, experts without a copy first, and drops the old copies of experts
  /// that are all where they shall be.
  bool advance(LayerWay& way) {
    Slots added = way.changes.added;
    std::stable_partition(added.begin(), added.end(),
                          [&](const auto& slot) { return !way.have.contains(slot.expert); });
    std::set<std::int32_t> on_the_way;  // experts with copies that could not be loaded yet
    bool changed = false;
    for (const auto& slot : added) {
      if (load(way, slot)) {
        changed = true;
      } else {
        on_the_way.insert(slot.expert);
      }
    }
    for (const auto& slot : way.changes.removed) {
      if (on_the_way.contains(slot.expert) || !has_other_copy(way, slot)) continue;
      drop(way, slot);
      changed = true;
    }
    if (changed) way.layer->slots = ordered_slots(std::move(way.layer->slots));
    return changed;
  }

  /// Drops copies that the goal does not have and whose expert has another, where a device must
  /// take one and is full.
  bool make_room(LayerWay& way) {
    std::set<DeviceRef> full;
    for (const LayerWay& any : ways_) {
      for (const auto& slot : any.changes.added) {
        if (!has_room(slot.device)) full.insert(slot.device);
      }
    }
    bool changed = false;
    for (const auto& slot : way.changes.removed) {
      if (!full.contains(slot.device) || !has_other_copy(way, slot)) continue;
      drop(way, slot);
      changed = true;
    }
    if (changed) way.layer->slots = ordered_slots(std::move(way.layer->slots));
    return changed;
  }

  const NextStepInput& input_;
  std::int32_t layers_left_;
  std::size_t loaded_ = 0;
  std::map<std::int32_t, LayerExperts> next_;
  std::set<std::int32_t> begun_;             // layers that `current` does not have
  std::map<DeviceRef, std::uint64_t> room_;  // bytes left on devices with a bound
  std::vector<LayerWay> ways_;               // layers that differ, the urgent first
};

}  // namespace

std::vector<LayerExperts> next_step(const NextStepInput& input) { return Stepper(input).step(); }

}  // namespace troupe
