#include "model/placement/even_out.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

namespace troupe {
namespace {

class Layer {
 public:
  Layer(const EvenOutInput& input, std::map<DeviceRef, std::size_t>& totals)
      : input_(input), totals_(totals) {
    for (const auto& device : input.devices) on_[device];
    for (const auto& slot : input.current.slots) {
      const bool known = slot.expert >= 0 && slot.expert < input.num_experts;
      if (known && on_.contains(slot.device)) add(slot.expert, slot.device);
    }
  }

  void run() {
    for (const auto& device : input_.devices) shed(device);
    for (std::int32_t e = 0; e < input_.num_experts; ++e)
      if (homes_[e].empty())
        while (!place(e) && drop_spare()) {
        }
    const auto most = static_cast<std::size_t>(input_.num_experts) * input_.devices.size();
    const auto wanted = std::min<std::size_t>(static_cast<std::size_t>(input_.copies), most);
    while (copies_ < wanted && place_further()) {
    }
    while (copies_ > wanted && drop_spare()) {
    }
    while (move_one()) {
    }
  }

  LayerExperts result() const {
    LayerExperts layer{input_.current.layer, {}};
    for (const auto& [expert, devices] : homes_)
      for (const auto& device : devices) layer.slots.push_back({expert, device});
    return layer;
  }

 private:
  void add(std::int32_t expert, const DeviceRef& device) {
    if (!on_[device].insert(expert).second) return;
    homes_[expert].insert(device);
    ++totals_[device];
    ++copies_;
  }
  void remove(std::int32_t expert, const DeviceRef& device) {
    on_[device].erase(expert);
    homes_[expert].erase(device);
    --totals_[device];
    --copies_;
  }
  /// Whether a copy on that node is another copy's neighbour, `without` aside.
  bool near(std::int32_t expert, NodeId node, const std::optional<DeviceRef>& without = {}) const {
    const auto homes = homes_.find(expert);
    return homes != homes_.end() &&
           std::any_of(homes->second.begin(), homes->second.end(),
                       [&](const auto& d) { return d.node == node && d != without; });
  }
  double share(std::int32_t expert) const {
    const auto e = static_cast<std::size_t>(expert);
    const double load = e < input_.load.size() ? input_.load[e] : 1;
    return load / static_cast<double>(homes_.at(expert).size());
  }

  bool open(const DeviceRef& device) const {
    const auto most = input_.most.find(device);
    return most == input_.most.end() || on_.at(device).size() < most->second;
  }
  /// What a device has beyond the most that it may have goes: spare copies, else to others.
  void shed(const DeviceRef& device) {
    const auto most = input_.most.find(device);
    while (most != input_.most.end() && on_.at(device).size() > most->second) {
      const auto& here = on_.at(device);
      const auto spare = std::find_if(here.begin(), here.end(),
                                      [&](std::int32_t e) { return homes_.at(e).size() > 1; });
      const bool moves = spare == here.end();
      const std::int32_t expert = moves ? *here.begin() : *spare;
      remove(expert, device);
      if (moves) place(expert);
    }
  }

  bool place(std::int32_t expert) {
    std::optional<DeviceRef> best;
    const auto rank = [&](const DeviceRef& d) {
      return std::tuple(near(expert, d.node), on_.at(d).size(), totals_[d], d);
    };
    for (const auto& [device, experts] : on_)
      if (!experts.contains(expert) && open(device) && (!best || rank(device) < rank(*best)))
        best = device;
    if (best) add(expert, *best);
    return best.has_value();
  }

  bool has_room_for(std::int32_t expert) const {
    return std::any_of(on_.begin(), on_.end(), [&](const auto& device) {
      return !device.second.contains(expert) && open(device.first);
    });
  }

  /// One more copy of the expert with the most load a copy, of equals the one with fewest copies.
  bool place_further() {
    std::optional<std::int32_t> best;
    const auto rank = [&](std::int32_t e) { return std::tuple(-share(e), homes_.at(e).size(), e); };
    for (const auto& [expert, homes] : homes_) {
      if (homes.empty() || homes.size() >= on_.size()) continue;
      if ((!best || rank(expert) < rank(*best)) && has_room_for(expert)) best = expert;
    }
    return best && place(*best);
  }

  /// One copy less, of the expert with the least load a copy, from the fullest of its devices.
  bool drop_spare() {
    std::optional<std::int32_t> best;
    for (const auto& [expert, homes] : homes_)
      if (homes.size() > 1 && (!best || share(expert) < share(*best))) best = expert;
    if (!best) return false;
    const auto& homes = homes_.at(*best);
    const auto fullest = std::max_element(homes.begin(), homes.end(), [&](auto& a, auto& b) {
      return std::tuple(on_.at(a).size(), totals_[a]) < std::tuple(on_.at(b).size(), totals_[b]);
    });
    remove(*best, DeviceRef(*fullest));
    return true;
  }

  bool move_one() {
    const auto rank = [&](const DeviceRef& d) {
      return std::tuple(on_.at(d).size(), totals_[d], d);
    };
    std::optional<DeviceRef> full, low;
    for (const auto& [device, experts] : on_) {
      if (!full || rank(device) > rank(*full)) full = device;
      if (open(device) && (!low || rank(device) < rank(*low))) low = device;
    }
    if (!full || !low || on_.at(*full).size() <= on_.at(*low).size() + 1) return false;
    std::optional<std::int32_t> chosen;
    for (const std::int32_t e : on_.at(*full)) {
      if (on_.at(*low).contains(e)) continue;
      const bool spread = !near(e, low->node, full);
      if (spread) chosen = e;
      if (spread) break;
      if (!chosen) chosen = e;
    }
    if (!chosen) return false;  // it has all of them
    remove(*chosen, *full);
    add(*chosen, *low);
    return true;
  }

  const EvenOutInput& input_;
  std::map<DeviceRef, std::size_t>& totals_;
  std::map<DeviceRef, std::set<std::int32_t>> on_;
  std::map<std::int32_t, std::set<DeviceRef>> homes_;
  std::size_t copies_ = 0;
};

}  // namespace

LayerExperts even_out(const EvenOutInput& input, std::map<DeviceRef, std::size_t>& totals) {
  Layer layer(input, totals);
  layer.run();
  return layer.result();
}

}  // namespace troupe
