#include "model/placement/replan.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "model/placement/balance_experts.h"
#include "model/placement/compute_room.h"
#include "model/placement/even_out.h"
#include "model/placement/slot_changes.h"
#include "runtime/byte_size.h"

namespace troupe {
namespace {

/// A layout that is this near to the best one is kept, mended by swaps: copies that move cost more.
constexpr double kTolerance = 0.05;

const LayerExperts* find_layer(const std::vector<LayerExperts>& layers, std::int32_t number) {
  for (const auto& layer : layers)
    if (layer.layer == number) return &layer;
  return nullptr;
}

/// Copies for the experts that have none, device by device as there is room.
class Filler {
 public:
  /// `room`: bytes for experts on each device, those that are there included.
  Filler(const ReplanInput& input, const std::map<DeviceRef, std::uint64_t>& room)
      : input_(input), each_(std::max<std::uint64_t>(1, input.base.model.expert_bytes)) {
    for (const auto& [device, bytes] : room) {
      devices_.push_back(device);
      const bool takes = !input.closed.contains(device) && !input.leaving.contains(device);
      free_.push_back(takes ? bytes / each_ : 0);
    }
  }

  Result<std::vector<LayerExperts>> fill(const std::vector<LayerExperts>& there) {
    for (const auto& layer : there)
      for (const auto& slot : layer.slots)
        if (const std::size_t d = index_of(slot.device); d < free_.size() && free_[d] > 0)
          --free_[d];
    std::vector<LayerExperts> layers;
    for (const std::int32_t number : expert_layers(input_.base.model)) {
      LayerExperts layer{number, {}};
      if (const auto* old = find_layer(there, number)) layer = *old;
      fill(layer);
      layers.push_back(std::move(layer));
    }
    if (lacking_ == 0) return layers;
    return resource_exhausted(std::to_string(lacking_) +
                              " experts have no copy any more and the devices that are left lack " +
                              std::to_string(lacking_ * each_) + " bytes (" +
                              format_byte_size(lacking_ * each_) +
                              ") for them; add a worker or memory.");
  }

 private:
  std::size_t index_of(const DeviceRef& device) const {
    const auto at = std::lower_bound(devices_.begin(), devices_.end(), device);
    return at != devices_.end() && *at == device ? static_cast<std::size_t>(at - devices_.begin())
                                                 : devices_.size();
  }

  /// Of each expert of a layer: the nodes that have it in memory.
  std::map<std::int32_t, std::set<NodeId>> holders_of(std::int32_t layer) const {
    std::map<std::int32_t, std::set<NodeId>> holders;
    for (const auto& [node, held] : input_.held)
      if (const auto experts = held.find(layer); experts != held.end())
        for (const std::int32_t expert : experts->second) holders[expert].insert(node);
    return holders;
  }

  /// Where there is room, the device with the fewest of that layer; `nodes`: only on these.
  std::optional<std::size_t> emptiest(const std::vector<std::size_t>& slots,
                                      const std::set<NodeId>* nodes) const {
    std::optional<std::size_t> best;
    for (std::size_t d = 0; d < devices_.size(); ++d)
      if (free_[d] > 0 && (!best || slots[d] < slots[*best]) &&
          (!nodes || nodes->contains(devices_[d].node)))
        best = d;
    return best;
  }

  void fill(LayerExperts& layer) {
    const auto experts = static_cast<std::size_t>(input_.base.model.num_experts);
    std::vector<std::size_t> slots(devices_.size(), 0);
    std::vector<bool> there(experts, false);
    for (const auto& slot : layer.slots) {
      if (const std::size_t d = index_of(slot.device); d < slots.size()) ++slots[d];
      if (static_cast<std::size_t>(slot.expert) < experts)
        there[static_cast<std::size_t>(slot.expert)] = true;
    }
    if (std::find(there.begin(), there.end(), false) == there.end()) return;
    const auto holders = holders_of(layer.layer);
    for (std::size_t e = 0; e < experts; ++e) {
      if (there[e]) continue;
      const auto expert = static_cast<std::int32_t>(e);
      std::optional<std::size_t> best;
      if (const auto held = holders.find(expert); held != holders.end())
        best = emptiest(slots, &held->second);
      if (!best) best = emptiest(slots, nullptr);
      if (!best) {
        ++lacking_;
        continue;
      }
      --free_[*best];
      ++slots[*best];
      layer.slots.push_back({expert, devices_[*best]});
    }
    layer.slots = ordered_slots(std::move(layer.slots));
  }

  const ReplanInput& input_;
  const std::uint64_t each_;
  std::vector<DeviceRef> devices_;   // ordered
  std::vector<std::uint64_t> free_;  // copies that they can take, 0 if they take nothing
  std::uint64_t lacking_ = 0;
};

PlacementInput plan_input(const ReplanInput& input, Placement kept) {
  PlacementInput base = input.base;
  base.kept = std::move(kept);
  base.closed = input.closed;
  base.closed.insert(input.leaving.begin(), input.leaving.end());
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

using Room = std::map<DeviceRef, std::uint64_t>;

bool fits(const std::map<DeviceRef, std::size_t>& totals, const Room& room, std::uint64_t each) {
  return std::all_of(totals.begin(), totals.end(), [&](const auto& total) {
    return total.second * each <= room.at(total.first);
  });
}

std::size_t count_on(const LayerExperts& layer, const DeviceRef& device) {
  return static_cast<std::size_t>(
      std::count_if(layer.slots.begin(), layer.slots.end(),
                    [&](const auto& slot) { return slot.device == device; }));
}

/// A layer as its load asks for.
Result<LayerExperts> balanced(const ReplanInput& input, const EvenOutInput& even) {
  BalanceInput balance;
  balance.layers = {even.current.layer};
  balance.num_experts = even.num_experts;
  balance.num_groups = input.num_groups;
  balance.copies = even.copies;
  balance.devices = even.devices;
  balance.current = {even.current};
  balance.weight = {even.load};
  balance.tolerance = kTolerance;
  auto layers = balance_experts(balance);
  if (!layers) return layers.error();
  return std::move(layers->front());
}

/// The layers in as even shares as there is room; closed devices get nothing more. Where devices
/// have unequal shares, load only decides which experts have more copies.
Result<std::vector<LayerExperts>> lay_out(const ReplanInput& input,
                                          const std::vector<LayerExperts>& living, Room room) {
  const auto& model = input.base.model;
  const std::int32_t redundant = input.base.engine.redundant_experts;
  std::erase_if(room, [&](const auto& device) { return input.leaving.contains(device.first); });
  if (room.empty()) return unavailable("No device would be left.");
  EvenOutInput even;
  even.num_experts = model.num_experts;
  for (const auto& [device, bytes] : room) even.devices.push_back(device);
  const ExpertShares shares = shares_of(model, redundant, room);
  const auto numbers = expert_layers(model);
  // First as few moves as can be; if that is too much for a device, by the shares.
  for (const bool by_shares : {false, true}) {
    if (by_shares && (shares.lacking > 0 || !input.closed.empty())) break;
    std::vector<LayerExperts> layers;
    std::map<DeviceRef, std::size_t> totals;
    for (std::size_t l = 0; l < numbers.size(); ++l) {
      even.copies =
          by_shares ? static_cast<std::int32_t>(shares.copies) : model.num_experts + redundant;
      even.current = {numbers[l], {}};
      if (const auto* old = find_layer(living, numbers[l])) even.current = *old;
      const auto load = input.load.find(numbers[l]);
      even.load = load == input.load.end() ? std::vector<float>{} : load->second;
      even.most.clear();
      for (const auto& device : input.closed) even.most[device] = count_on(even.current, device);
      for (std::size_t d = 0; by_shares && d < even.devices.size(); ++d)
        even.most[even.devices[d]] = shares.of[l][d];
      if (!even.most.empty() || !input.balance_layers.contains(numbers[l])) {
        layers.push_back(even_out(even, totals));
        continue;
      }
      auto layer = balanced(input, even);
      if (!layer) return layer.error();
      for (const auto& slot : layer->slots) ++totals[slot.device];
      layers.push_back(std::move(*layer));
    }
    if (fits(totals, room, model.expert_bytes)) return layers;
  }
  return experts_lack_room(model, input.base.engine, room);
}

/// Whether what `left` lacks fits on the devices, beside the replicas that live: that they begin
/// again is a last resort, which nobody should count on. Counts rather than plans: this is asked
/// for each node of the cluster.
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
  const auto& costs = input.living_compute ? input.living_compute : input.base.compute;
  auto compute = costs ? compute_bytes(input.base, left, *costs) : Room{};
  Room memory;
  for (const auto& d : input.base.devices) {
    const bool computes = input.base.cpus_compute || d.kind != "cpu";
    const std::uint64_t its = computes ? std::min(d.memory_total, compute[d.device]) : 0;
    memory[d.device] = std::min(plannable_bytes(d.memory_total), d.memory_total - its);
  }
  for (const auto& use : placement_use(input.base, left)) {
    if (input.closed.contains(use.device) || input.leaving.contains(use.device)) continue;
    const std::uint64_t all = memory[use.device];  // none of one that is gone
    room += (all - std::min(all, use.total())) / each;
  }
  return missing <= room;
}

}  // namespace

Placement living_part(const Placement& placement, const std::vector<PlacementDevice>& devices) {
  std::vector<DeviceRef> here;
  for (const auto& d : devices) here.push_back(d.device);
  std::sort(here.begin(), here.end());
  const auto lives = [&](const DeviceRef& device) {
    return std::binary_search(here.begin(), here.end(), device);
  };
  Placement living = placement;
  std::set<std::uint32_t> lost;
  for (const auto& shard : placement.shards)
    if (!lives(shard.device)) lost.insert(shard.replica);
  std::erase_if(living.shards, [&](const auto& s) { return lost.contains(s.replica); });
  std::erase_if(living.replicas, [&](const auto& r) { return lost.contains(r.id); });
  for (auto* layers : {&living.experts, &living.tier})
    for (auto& layer : *layers)
      std::erase_if(layer.slots, [&](const auto& slot) { return !lives(slot.device); });
  std::erase_if(living.tier, [](const auto& layer) { return layer.slots.empty(); });
  return living;
}

bool can_serve(const Placement& placement, const ModelCosts& model) {
  if (placement.replicas.empty()) return false;
  for (const std::int32_t number : expert_layers(model)) {
    const LayerExperts* layer = find_layer(placement.experts, number);
    if (!layer) return false;
    std::vector<bool> there(static_cast<std::size_t>(model.num_experts), false);
    for (const auto& slot : layer->slots)
      if (slot.expert >= 0 && slot.expert < model.num_experts)
        there[static_cast<std::size_t>(slot.expert)] = true;
    if (std::find(there.begin(), there.end(), false) != there.end()) return false;
  }
  return true;
}

Result<Placement> repair_placement(const ReplanInput& input) {
  const Placement living = living_part(input.before, input.base.devices);
  PlacementInput plan = plan_input(input, living);
  plan.engine.data_parallel_size = std::max<std::int32_t>(
      1, static_cast<std::int32_t>(living.replicas.size()));  // the goal has more
  auto repaired = plan_placement(
      plan, [&](const Room& room) { return Filler(input, room).fill(living.experts); });
  if (!repaired || !plan.compute) return repaired;
  if (const Status room = room_to_compute(plan, *repaired, plan.cpus_compute); !room)
    return room.error();
  return repaired;
}

Result<Placement> make_room(const ReplanInput& input) {
  return make_room(input, [](const ReplanInput& after) -> Status {
    auto repaired = repair_placement(after);
    return repaired ? Status() : repaired.error();
  });
}

Result<Placement> make_room(const ReplanInput& input, const Repairs& repairs) {
  const Placement living = living_part(input.before, input.base.devices);
  // Device by device: a shard needs its room on one.
  std::map<DeviceRef, std::vector<std::pair<std::size_t, std::int32_t>>> on;
  std::vector<std::map<std::int32_t, std::size_t>> copies(living.experts.size());
  for (std::size_t l = 0; l < living.experts.size(); ++l)
    for (const auto& slot : living.experts[l].slots) {
      ++copies[l][slot.expert];
      if (!input.closed.contains(slot.device) && !input.leaving.contains(slot.device))
        on[slot.device].emplace_back(l, slot.expert);
    }
  std::vector<std::pair<std::size_t, ExpertSlot>> spare;
  for (const auto& [device, experts] : on)
    for (const auto& [l, expert] : experts)
      if (copies[l][expert] > 1) {
        --copies[l][expert];
        spare.push_back({l, {expert, device}});
      }
  const auto without = [&](std::size_t count) {
    Placement fewer = living;
    std::vector<std::set<std::pair<std::int32_t, DeviceRef>>> gone(living.experts.size());
    for (std::size_t i = 0; i < count; ++i)
      gone[spare[i].first].insert({spare[i].second.expert, spare[i].second.device});
    for (std::size_t l = 0; l < fewer.experts.size(); ++l)
      std::erase_if(fewer.experts[l].slots, [&](const auto& slot) {
        return gone[l].contains({slot.expert, slot.device});
      });
    return fewer;
  };
  const auto repaired = [&](std::size_t count) {
    ReplanInput after = input;
    after.before = without(count);
    return repairs(after);
  };
  if (spare.empty()) return resource_exhausted("There are no spare copies of experts.");
  std::size_t low = 0, high = spare.size();  // the fewest that help are above low, up to high
  if (const auto most = repaired(high); !most) return most.error();
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    (repaired(middle) ? high : low) = middle;
  }
  Placement fewer = without(high);
  fewer.version = input.base.version;
  fewer.numerics = input.base.numerics;
  return fewer;
}

Result<Placement> goal_placement(const ReplanInput& input) {
  Placement next = living_part(input.before, input.base.devices);
  drop_leaving(next, input.leaving);
  PlacementInput plan = plan_input(input, next);
  Placement ending = living_part(input.before, input.base.devices);
  ending.experts.clear();
  std::set<std::uint32_t> kept;
  for (const auto& replica : next.replicas) kept.insert(replica.id);
  std::erase_if(ending.replicas, [&](const auto& r) { return kept.contains(r.id); });
  std::erase_if(ending.shards, [&](const auto& s) { return kept.contains(s.replica); });
  for (const auto& use : placement_use(input.base, ending)) plan.taken[use.device] = use.total();
  auto goal = plan_placement(plan, [&](const Room& room) -> Result<std::vector<LayerExperts>> {
    auto layers = lay_out(input, next.experts, room);
    if (layers || input.closed.empty()) return layers;
    // Some take nothing more, and the others cannot have even shares: only what is missing is
    // placed.
    std::vector<LayerExperts> staying = next.experts;
    for (auto& layer : staying)
      std::erase_if(layer.slots, [&](const auto& s) { return input.leaving.contains(s.device); });
    return Filler(input, room).fill(staying);
  });
  if (goal) goal->tier = plan_tier(input, *goal);
  return goal;
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
