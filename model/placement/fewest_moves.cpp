#include "model/placement/fewest_moves.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "model/placement/assignment.h"

namespace troupe {
namespace {

using Index = std::size_t;
using Values = std::vector<std::vector<std::int64_t>>;

/// What makes two devices interchangeable: kind and number of slots.
using DeviceShape = std::pair<std::int32_t, Index>;

/// The devices of the computed layout, each once as what it is and once as the place of a pack of
/// experts that may have been computed for another.
class Matcher {
 public:
  Matcher(const LayerExperts& current, const LayerExperts& computed,
          const std::map<DeviceRef, std::int32_t>& kinds) {
    std::map<DeviceRef, std::vector<std::int32_t>> packs;
    for (const auto& slot : computed.slots) packs[slot.device].push_back(slot.expert);
    std::map<std::int32_t, std::vector<Index>> wanted;  // packs that hold an expert
    for (const auto& [device, experts] : packs) {
      const auto kind = kinds.find(device);
      if (devices_.empty() || devices_.back().node != device.node) nodes_.emplace_back();
      nodes_.back().push_back(devices_.size());
      for (const std::int32_t e : experts) wanted[e].push_back(devices_.size());
      shape_.push_back({kind == kinds.end() ? 0 : kind->second, experts.size()});
      devices_.push_back(device);
    }
    packs_ = std::move(packs);
    overlap_.resize(devices_.size());
    for (const auto& slot : current.slots) {
      const auto at = std::lower_bound(devices_.begin(), devices_.end(), slot.device);
      const auto packs_with = wanted.find(slot.expert);
      if (at == devices_.end() || *at != slot.device || packs_with == wanted.end()) continue;
      for (const Index pack : packs_with->second)
        ++overlap_[pack][static_cast<Index>(at - devices_.begin())];
    }
  }

  LayerExperts match(std::int32_t layer) {
    place_.assign(devices_.size(), 0);
    for (const auto& group : like_nodes()) match_nodes(group);
    LayerExperts result{layer, {}};
    for (Index pack = 0; pack < devices_.size(); ++pack) {
      for (const std::int32_t e : packs_.at(devices_[pack]))
        result.slots.push_back({e, devices_[place_[pack]]});
    }
    result.slots = ordered_slots(std::move(result.slots));
    return result;
  }

 private:
  /// Copies that stay if `pack` goes to `device`. Of equal matches the one with the most devices
  /// that keep their pack wins, whose number never outweighs a copy.
  std::int64_t value(Index pack, Index device) const {
    const auto found = overlap_[pack].find(device);
    const std::int64_t copies = found == overlap_[pack].end() ? 0 : found->second;
    return copies * static_cast<std::int64_t>(devices_.size() + 1) + (pack == device ? 1 : 0);
  }

  /// Devices of a node by shape; only those of one shape are interchangeable.
  std::map<DeviceShape, std::vector<Index>> by_shape(Index node) const {
    std::map<DeviceShape, std::vector<Index>> classes;
    for (const Index d : nodes_[node]) classes[shape_[d]].push_back(d);
    return classes;
  }

  /// Nodes with the same number of devices of every shape.
  std::vector<std::vector<Index>> like_nodes() const {
    std::map<std::vector<DeviceShape>, std::vector<Index>> groups;
    for (Index n = 0; n < nodes_.size(); ++n) {
      std::vector<DeviceShape> shapes;
      for (const Index d : nodes_[n]) shapes.push_back(shape_[d]);
      std::sort(shapes.begin(), shapes.end());
      groups[shapes].push_back(n);
    }
    std::vector<std::vector<Index>> result;
    for (auto& [shapes, nodes] : groups) result.push_back(std::move(nodes));
    return result;
  }

  using Pairs = std::vector<std::pair<Index, Index>>;  // pack, device

  /// The best way to put the packs of one node on the devices of another, and its value.
  std::pair<std::int64_t, Pairs> best_pairs(Index packs_of, Index devices_of) const {
    std::pair<std::int64_t, Pairs> best{0, {}};
    const auto packs = by_shape(packs_of), devices = by_shape(devices_of);
    for (const auto& [shape, from] : packs) {
      const auto& to = devices.at(shape);
      Values values(from.size(), std::vector<std::int64_t>(to.size()));
      for (Index i = 0; i < from.size(); ++i) {
        for (Index j = 0; j < to.size(); ++j) values[i][j] = value(from[i], to[j]);
      }
      const auto column = best_assignment(values);
      for (Index i = 0; i < from.size(); ++i) {
        best.first += values[i][column[i]];
        best.second.push_back({from[i], to[column[i]]});
      }
    }
    return best;
  }

  void match_nodes(const std::vector<Index>& nodes) {
    Values values(nodes.size(), std::vector<std::int64_t>(nodes.size()));
    for (Index i = 0; i < nodes.size(); ++i) {
      for (Index j = 0; j < nodes.size(); ++j) values[i][j] = best_pairs(nodes[i], nodes[j]).first;
    }
    const auto column = best_assignment(values);
    for (Index i = 0; i < nodes.size(); ++i) {
      for (const auto& [pack, device] : best_pairs(nodes[i], nodes[column[i]]).second)
        place_[pack] = device;
    }
  }

  std::vector<DeviceRef> devices_;  // ordered
  std::vector<DeviceShape> shape_;  // of each device
  std::vector<std::vector<Index>> nodes_;
  std::map<DeviceRef, std::vector<std::int32_t>> packs_;
  std::vector<std::map<Index, std::int64_t>> overlap_;  // of each pack: device, common copies
  std::vector<Index> place_;                            // the device of each pack
};

}  // namespace

FewestMoves fewest_moves(const LayerExperts& current, const LayerExperts& computed,
                         const std::map<DeviceRef, std::int32_t>& kinds) {
  FewestMoves result;
  result.layout = Matcher(current, computed, kinds).match(computed.layer);
  result.changes = slot_changes(current, result.layout);
  return result;
}

}  // namespace troupe
