#include "model/placement/replan.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "model/placement/advice.h"
#include "model/placement/balance_experts.h"
#include "model/placement/even_out.h"
#include "model/placement/slot_changes.h"
#include "runtime/byte_size.h"

namespace troupe {
namespace {

/// A layout that is this near to the best one is kept, mended by swaps: copies that move cost more.
constexpr double kTolerance = 0.05;

std::vector<std::int32_t> expert_layers(const ModelCosts& model) {
  std::vector<std::int32_t> layers;
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if (model.layers[i].has_experts) layers.push_back(static_cast<std::int32_t>(i));
  return model.num_experts > 0 ? layers : std::vector<std::int32_t>{};
}

const LayerExperts* find_layer(const std::vector<LayerExperts>& layers, std::int32_t number) {
  for (const auto& layer : layers)
    if (layer.layer == number) return &layer;
  return nullptr;
}

/// Copies for the experts that have none, device by device as there is room.
class Filler {
 public:
  Filler(const ReplanInput& input, Placement& placement) : input_(input), placement_(placement) {
    const auto& devices = input.base.devices;
    for (const auto& use : placement_use(input.base, placement)) {
      const auto device = std::find_if(devices.begin(), devices.end(),
                                       [&](const auto& d) { return d.device == use.device; });
      const std::uint64_t bytes = plannable_bytes(device->memory_total);
      if (!input.closed.contains(use.device) && !input.leaving.contains(use.device))
        free_[use.device] = bytes - std::min(bytes, use.total());
    }
  }

  Status fill() {
    for (const std::int32_t number : expert_layers(input_.base.model)) {
      LayerExperts layer{number, {}};
      if (const auto* old = find_layer(placement_.experts, number)) layer = *old;
      fill(layer);
      layers_.push_back(std::move(layer));
    }
    if (lacking_ > 0)
      return resource_exhausted(std::to_string(lacking_) +
                                " experts have no copy any more and the devices that are left "
                                "lack " +
                                std::to_string(lacking_ * input_.base.model.expert_bytes) +
                                " bytes (" +
                                format_byte_size(lacking_ * input_.base.model.expert_bytes) +
                                ") for them; add a worker or memory.");
    placement_.experts = std::move(layers_);
    return {};
  }

 private:
  bool holds(NodeId node, std::int32_t layer, std::int32_t expert) const {
    const auto held = input_.held.find(node);
    if (held == input_.held.end()) return false;
    const auto experts = held->second.experts.find(layer);
    return experts != held->second.experts.end() && experts->second.contains(expert);
  }

  void fill(LayerExperts& layer) {
    std::map<DeviceRef, std::size_t> slots;
    std::set<std::int32_t> there;
    for (const auto& slot : layer.slots) {
      ++slots[slot.device];
      there.insert(slot.expert);
    }
    for (std::int32_t expert = 0; expert < input_.base.model.num_experts; ++expert) {
      if (there.contains(expert)) continue;
      std::optional<DeviceRef> best;
      const auto rank = [&](const DeviceRef& d) {
        return std::tuple(!holds(d.node, layer.layer, expert), slots[d], d);
      };
      for (const auto& [device, bytes] : free_)
        if (bytes >= input_.base.model.expert_bytes && (!best || rank(device) < rank(*best)))
          best = device;
      if (!best) {
        ++lacking_;
        continue;
      }
      free_[*best] -= input_.base.model.expert_bytes;
      ++slots[*best];
      layer.slots.push_back({expert, *best});
    }
    layer.slots = ordered_slots(std::move(layer.slots));
  }

  const ReplanInput& input_;
  Placement& placement_;
  std::map<DeviceRef, std::uint64_t> free_;  // of the devices that take something
  std::vector<LayerExperts> layers_;
  std::uint64_t lacking_ = 0;
};

PlacementInput plan_input(const ReplanInput& input, Placement kept) {
  PlacementInput base = input.base;
  base.kept = std::move(kept);
  base.closed = input.closed;
  base.closed.insert(input.leaving.begin(), input.leaving.end());
  for (const auto& [node, held] : input.held) base.held_shards[node] = held.shards;
  return base;
}

void drop_leaving(Placement& placement, const std::set<DeviceRef>& leaving) {
  std::set<std::uint32_t> ending;
  for (const auto& shard : placement.shards)
    if (leaving.contains(shard.device)) ending.insert(shard.replica);
  std::erase_if(placement.shards, [&](const auto& s) { return ending.contains(s.replica); });
  std::erase_if(placement.replicas, [&](const auto& r) { return ending.contains(r.id); });
}

/// A second copy in host memory for every expert that lies on one node alone, as far as nodes offer
/// room. What is there already stays.
std::vector<LayerExperts> plan_tier(const ReplanInput& input, const Placement& placement) {
  std::map<NodeId, std::uint64_t> room = input.tier_bytes;
  const std::uint64_t each = std::max<std::uint64_t>(1, input.base.model.expert_bytes);
  std::vector<LayerExperts> tier;
  for (const auto& layer : placement.experts) {
    const LayerExperts* before = find_layer(input.before.tier, layer.layer);
    std::map<std::int32_t, std::set<NodeId>> nodes;
    for (const auto& slot : layer.slots) nodes[slot.expert].insert(slot.device.node);
    LayerExperts kept{layer.layer, {}};
    for (const auto& [expert, homes] : nodes) {
      if (homes.size() != 1) continue;
      std::optional<NodeId> best;
      const auto had = [&](NodeId node) {
        if (!before) return false;
        return std::any_of(before->slots.begin(), before->slots.end(), [&](const auto& slot) {
          return slot.expert == expert && slot.device.node == node;
        });
      };
      for (const auto& [node, bytes] : room) {
        if (homes.contains(node) || bytes < each) continue;
        const auto rank = [&](NodeId n) { return std::tuple(had(n), room.at(n)); };
        if (!best || rank(node) > rank(*best)) best = node;
      }
      if (!best) continue;
      room[*best] -= each;
      kept.slots.push_back({expert, {*best, 0}});
    }
    if (!kept.slots.empty()) tier.push_back(std::move(kept));
  }
  return tier;
}

Result<std::vector<LayerExperts>> lay_out(const ReplanInput& input, Placement& living) {
  const auto& model = input.base.model;
  std::vector<DeviceRef> devices;
  for (const auto& d : input.base.devices)
    if (!input.leaving.contains(d.device)) devices.push_back(d.device);
  if (devices.empty()) return unavailable("No device would be left.");
  std::sort(devices.begin(), devices.end());
  const std::int32_t copies = model.num_experts + input.base.engine.redundant_experts;
  const auto layers = expert_layers(model);
  if (!input.closed.empty()) {
    // Some must keep what they have, and more: only what is missing is placed.
    for (auto& layer : living.experts)
      std::erase_if(layer.slots, [&](const auto& s) { return input.leaving.contains(s.device); });
    if (Status filled = Filler(input, living).fill(); !filled) return filled.error();
    return living.experts;
  }
  std::vector<LayerExperts> laid_out;
  std::map<DeviceRef, std::size_t> totals;
  for (const std::int32_t number : layers) {
    EvenOutInput even{{number, {}}, model.num_experts, copies, devices, {}};
    if (const auto* old = find_layer(living.experts, number)) even.current = *old;
    if (const auto load = input.load.find(number); load != input.load.end())
      even.load = load->second;
    if (!input.balance_layers.contains(number)) {
      laid_out.push_back(even_out(even, totals));
      continue;
    }
    BalanceInput balance;
    balance.layers = {number};
    balance.num_experts = model.num_experts;
    balance.num_groups = input.num_groups;
    balance.copies = copies;
    balance.devices = devices;
    balance.current = {even.current};
    balance.weight = {even.load};
    balance.tolerance = kTolerance;
    auto balanced = balance_experts(balance);
    if (!balanced) return balanced.error();
    laid_out.push_back(std::move(balanced->front()));
    for (const auto& slot : laid_out.back().slots) ++totals[slot.device];
  }
  return laid_out;
}

Status check_room(const ReplanInput& input, const Placement& placement) {
  for (const auto& use : placement_use(input.base, placement))
    for (const auto& d : input.base.devices)
      if (d.device == use.device && use.total() > plannable_bytes(d.memory_total))
        return resource_exhausted(
            to_string(d.device) + " lacks " +
            std::to_string(use.total() - plannable_bytes(d.memory_total)) + " bytes (" +
            format_byte_size(use.total() - plannable_bytes(d.memory_total)) +
            ") for its share of the experts. " + advice_for_experts(input.base.engine));
  return {};
}

/// Whether what `left` lacks fits on the devices. Counts rather than plans: this is asked for each
/// node of the cluster.
bool others_have_room(const ReplanInput& input, const Placement& left) {
  if (input.base.devices.empty()) return false;
  if (left.replicas.empty()) return repair_placement(input).ok();
  std::uint64_t missing = 0, room = 0;
  for (const std::int32_t number : expert_layers(input.base.model)) {
    std::set<std::int32_t> there;
    if (const auto* layer = find_layer(left.experts, number))
      for (const auto& slot : layer->slots) there.insert(slot.expert);
    missing += static_cast<std::uint64_t>(input.base.model.num_experts) - there.size();
  }
  const std::uint64_t each = std::max<std::uint64_t>(1, input.base.model.expert_bytes);
  for (const auto& use : placement_use(input.base, left)) {
    if (input.closed.contains(use.device) || input.leaving.contains(use.device)) continue;
    for (const auto& d : input.base.devices) {
      if (d.device != use.device) continue;
      const std::uint64_t all = plannable_bytes(d.memory_total);
      room += (all - std::min(all, use.total())) / each;
    }
  }
  return missing <= room;
}

}  // namespace

Placement living_part(const Placement& placement, const std::vector<PlacementDevice>& devices) {
  std::set<DeviceRef> here;
  for (const auto& d : devices) here.insert(d.device);
  Placement living = placement;
  std::set<std::uint32_t> lost;
  for (const auto& shard : placement.shards)
    if (!here.contains(shard.device)) lost.insert(shard.replica);
  std::erase_if(living.shards, [&](const auto& s) { return lost.contains(s.replica); });
  std::erase_if(living.replicas, [&](const auto& r) { return lost.contains(r.id); });
  for (auto* layers : {&living.experts, &living.tier})
    for (auto& layer : *layers)
      std::erase_if(layer.slots, [&](const auto& slot) { return !here.contains(slot.device); });
  std::erase_if(living.tier, [](const auto& layer) { return layer.slots.empty(); });
  return living;
}

bool can_serve(const Placement& placement, const ModelCosts& model) {
  if (placement.replicas.empty()) return false;
  for (const std::int32_t number : expert_layers(model)) {
    const LayerExperts* layer = find_layer(placement.experts, number);
    if (!layer) return false;
    std::set<std::int32_t> experts;
    for (const auto& slot : layer->slots) experts.insert(slot.expert);
    if (experts.size() < static_cast<std::size_t>(model.num_experts)) return false;
  }
  return true;
}

Result<Placement> repair_placement(const ReplanInput& input) {
  Placement next = living_part(input.before, input.base.devices);
  next.numerics = input.base.numerics;
  if (Status filled = Filler(input, next).fill(); !filled) return filled.error();
  PlacementInput plan = plan_input(input, next);
  plan.engine.data_parallel_size = std::max<std::int32_t>(
      1, static_cast<std::int32_t>(next.replicas.size()));  // the goal has more
  return plan_placement(plan);
}

Result<Placement> goal_placement(const ReplanInput& input) {
  Placement next = living_part(input.before, input.base.devices);
  drop_leaving(next, input.leaving);
  Result<std::vector<LayerExperts>> layout = lay_out(input, next);
  if (!layout) return layout.error();
  next.experts = std::move(*layout);
  next.tier = plan_tier(input, next);
  if (Status fits = check_room(input, next); !fits) return fits.error();
  PlacementInput plan = plan_input(input, next);
  Placement ending = living_part(input.before, input.base.devices);
  ending.experts.clear();
  std::set<std::uint32_t> kept;
  for (const auto& replica : next.replicas) kept.insert(replica.id);
  std::erase_if(ending.replicas, [&](const auto& r) { return kept.contains(r.id); });
  std::erase_if(ending.shards, [&](const auto& s) { return kept.contains(s.replica); });
  for (const auto& use : placement_use(input.base, ending)) plan.taken[use.device] = use.total();
  return plan_placement(plan);
}

Survival survival_of(const ReplanInput& input) {
  Survival survival;
  std::set<NodeId> nodes;
  for (const auto& d : input.base.devices) nodes.insert(d.device.node);
  for (const NodeId lost : nodes) {
    ReplanInput without = input;
    std::erase_if(without.base.devices, [&](const auto& d) { return d.device.node == lost; });
    Placement left = living_part(input.before, without.base.devices);
    // What the second tier has in memory needs no file.
    for (const auto& layer : left.tier)
      for (auto& served : left.experts)
        if (served.layer == layer.layer)
          served.slots.insert(served.slots.end(), layer.slots.begin(), layer.slots.end());
    if (can_serve(left, input.base.model))
      survival.at_once.push_back(lost);
    else if (others_have_room(without, left))
      survival.with_reload.push_back(lost);
    else
      survival.not_at_all.push_back(lost);
  }
  return survival;
}

}  // namespace troupe
