#include "model/placement/spread_experts.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace troupe {
namespace {

/// The copies of one layer while they are dealt out. Devices and experts are indices.
class Layer {
 public:
  Layer(std::size_t experts, const std::vector<DeviceRef>& devices)
      : devices_(devices), copies_(experts) {}

  /// First copies: `counts[d]` experts to each device, in order.
  void deal_first(const std::vector<std::size_t>& counts) {
    std::size_t expert = 0;
    for (std::size_t d = 0; d < counts.size(); ++d) {
      for (std::size_t i = 0; i < counts[d]; ++i) copies_[expert++].push_back(d);
    }
    assert(expert == copies_.size());
  }

  /// One more copy on `device`; ties go to the first expert from `start` on.
  void deal_further(std::size_t device, std::size_t start) {
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    for (const auto& c : copies_) fewest = std::min(fewest, c.size());
    std::size_t best = copies_.size();
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const std::size_t e = (start + i) % copies_.size();
      if (on_device(e, device)) continue;
      if (best == copies_.size() || worse(best, e, device)) best = e;
    }
    assert(best < copies_.size());
    if ((copies_[best].size() > fewest || on_node(best, device)) && swap_in(device, fewest)) return;
    add(best, device);
  }

  std::vector<ExpertSlot> slots() const {
    std::vector<ExpertSlot> slots;
    for (std::size_t e = 0; e < copies_.size(); ++e) {
      for (const std::size_t d : copies_[e]) {
        slots.push_back({static_cast<std::int32_t>(e), devices_[d]});
      }
    }
    return slots;
  }

 private:
  struct Further {
    std::size_t expert;
    std::size_t device;
  };

  bool on_device(std::size_t expert, std::size_t device) const {
    const auto& c = copies_[expert];
    return std::find(c.begin(), c.end(), device) != c.end();
  }
  bool on_node(std::size_t expert, std::size_t device) const {
    return std::any_of(copies_[expert].begin(), copies_[expert].end(),
                       [&](std::size_t d) { return devices_[d].node == devices_[device].node; });
  }
  bool worse(std::size_t a, std::size_t b, std::size_t device) const {
    if (copies_[a].size() != copies_[b].size()) return copies_[a].size() > copies_[b].size();
    return on_node(a, device) && !on_node(b, device);
  }
  void add(std::size_t expert, std::size_t device) {
    copies_[expert].push_back(device);
    further_.push_back({expert, device});
  }

  /// No expert with the fewest copies suits `device`: an earlier further copy moves here, and its
  /// place goes to one that does suit there.
  bool swap_in(std::size_t device, std::size_t fewest) {
    for (std::size_t i = 0; i < further_.size(); ++i) {
      const Further earlier = further_[i];
      if (on_device(earlier.expert, device)) continue;
      // Its own copy at the earlier place does not count: it leaves.
      auto& moved = copies_[earlier.expert];
      const auto at = std::find(moved.begin(), moved.end(), earlier.device);
      moved.erase(at);
      const bool clash = on_node(earlier.expert, device);
      for (std::size_t e = 0; !clash && e < copies_.size(); ++e) {
        if (e == earlier.expert || copies_[e].size() != fewest) continue;
        if (on_node(e, earlier.device)) continue;
        copies_[e].push_back(earlier.device);
        copies_[earlier.expert].push_back(device);
        further_[i].expert = e;
        further_.push_back({earlier.expert, device});
        return true;
      }
      moved.push_back(earlier.device);
    }
    return false;
  }

  const std::vector<DeviceRef>& devices_;
  std::vector<std::vector<std::size_t>> copies_;  // devices of each expert, the first copy first
  std::vector<Further> further_;
};

}  // namespace

std::vector<LayerExperts> spread_experts(const std::vector<std::int32_t>& layers,
                                         std::int32_t num_experts, const ExpertShares& shares,
                                         const std::vector<DeviceRef>& devices) {
  const std::size_t n = devices.size();
  const auto experts = static_cast<std::size_t>(num_experts);
  const std::size_t copies = shares.copies;
  std::vector<LayerExperts> result;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    // Copy by copy in turn, as long as a device has slots left, from the one whose turn it is.
    std::vector<std::size_t> left = shares.of[l], order;
    for (std::size_t d = l * copies % n; order.size() < copies; d = (d + 1) % n) {
      if (left[d] == 0) continue;
      --left[d];
      order.push_back(d);
    }
    Layer table(experts, devices);
    std::vector<std::size_t> first(n, 0);
    for (std::size_t i = 0; i < experts; ++i) ++first[order[i]];
    table.deal_first(first);
    for (std::size_t i = experts; i < copies; ++i)
      table.deal_further(order[i], (i - experts) * experts / (copies - experts));
    result.push_back({layers[l], table.slots()});
  }
  return result;
}

}  // namespace troupe
