#include "model/placement/compute_room.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "runtime/byte_size.h"

namespace troupe {
namespace {

/// Rows meet at a device's experts so many times as often as if all were asked for alike.
constexpr std::int64_t kSkew = 2;

/// What is on a device when it serves.
struct Load {
  DeviceUse use;
  std::uint64_t compute = 0;
  std::uint64_t memory = 0;
  std::uint64_t lacking() const {
    const std::uint64_t total = use.total() + compute;
    return total - std::min(total, memory);
  }
};

std::vector<Load> loads_of(const PlacementInput& input, const Placement& placement,
                           const ComputeCosts& costs) {
  std::map<DeviceRef, std::uint64_t> memory, compute = compute_bytes(input, placement, costs);
  for (const auto& d : input.devices) memory[d.device] = d.memory_total;
  std::vector<Load> loads;
  for (const DeviceUse& use : placement_use(input, placement))
    loads.push_back({use, compute[use.device], memory[use.device]});
  return loads;
}

/// The one that lacks most, if one lacks anything.
const Load* most_lacking(const std::vector<Load>& loads) {
  const auto worst = std::max_element(loads.begin(), loads.end(), [](const Load& a, const Load& b) {
    return a.lacking() < b.lacking();
  });
  return worst == loads.end() || worst->lacking() == 0 ? nullptr : &*worst;
}

/// A cache for each shard with which computing has room; 0: there is none. The shards of a replica
/// keep the same tokens, so that the device with the least room decides for all.
std::uint64_t smaller_cache(const PlacementInput& input, const std::vector<Load>& loads,
                            const Placement& placement) {
  std::map<DeviceRef, std::uint64_t> block;  // of all shards on a device
  std::uint64_t heaviest = 0;                // of one shard
  for (const auto& shard : placement.shards) {
    const std::uint64_t bytes = kv_block_bytes(input, shard.first_layer, shard.last_layer);
    block[shard.device] += bytes;
    heaviest = std::max(heaviest, bytes);
  }
  if (heaviest == 0) return 0;
  std::uint64_t blocks = std::numeric_limits<std::uint64_t>::max();
  for (const Load& load : loads) {
    if (block[load.use.device] == 0) continue;
    const std::uint64_t left = load.use.kv_bytes - std::min(load.use.kv_bytes, load.lacking());
    blocks = std::min(blocks, left / block[load.use.device]);
  }
  return blocks * heaviest >> 20 << 20;
}

std::int64_t copies_a_layer(const Placement& placement) {
  std::size_t least = placement.experts.empty() ? 0 : placement.experts.front().slots.size();
  for (const auto& layer : placement.experts) least = std::min(least, layer.slots.size());
  return static_cast<std::int64_t>(least);
}

/// Of the layer that has most copies on a device.
std::map<DeviceRef, std::int64_t> most_slots(const Placement& placement) {
  std::map<DeviceRef, std::int64_t> most;
  for (const auto& layer : placement.experts) {
    std::map<DeviceRef, std::int64_t> slots;
    for (const auto& slot : layer.slots) ++slots[slot.device];
    for (const auto& [device, count] : slots) most[device] = std::max(most[device], count);
  }
  return most;
}

}  // namespace

std::map<DeviceRef, std::uint64_t> compute_bytes(const PlacementInput& input,
                                                 const Placement& placement,
                                                 const ComputeCosts& costs) {
  std::map<DeviceRef, std::uint64_t> bytes;
  // Stages of all replicas are the same ranges of layers.
  std::map<std::uint32_t, std::uint64_t> stages;
  for (const auto& shard : placement.shards) {
    std::uint64_t& stage = stages[shard.stage];
    if (stage == 0) stage = costs.shard(shard.first_layer, shard.last_layer);
    bytes[shard.device] += stage;
  }
  if (input.devices.size() == 1) return bytes;  // its experts are all at hand
  const auto rows = static_cast<std::int64_t>(placement.replicas.size()) * costs.rows;
  const std::int64_t copies = std::max<std::int64_t>(1, copies_a_layer(placement));
  std::map<std::int64_t, std::uint64_t> groups;
  for (const auto& [device, slots] : most_slots(placement)) {
    const std::int64_t even = (rows * costs.top_k * slots + copies - 1) / copies;
    const std::int64_t pairs =
        std::min(kSkew * even, rows * std::min<std::int64_t>(costs.top_k, slots));
    std::uint64_t& group = groups[pairs];
    if (group == 0) group = costs.group(pairs);
    bytes[device] += group;
  }
  return bytes;
}

Result<Placement> plan_to_compute(PlacementInput& input, const CostsOfSteps& costs,
                                  const std::function<Result<Placement>()>& plan,
                                  std::int32_t least_tokens) {
  const EngineOptions asked = input.engine;
  const auto whole = plan();  // weights and caches, whatever a step has
  if (!whole) return whole;
  std::optional<Error> lacks;
  for (std::int32_t tokens = asked.max_num_batched_tokens;; tokens /= 2) {
    input.engine = asked;
    input.engine.max_num_batched_tokens = tokens;
    auto placement = whole;
    const ComputeCosts step = costs(tokens);
    std::vector<Load> loads = loads_of(input, *placement, step);
    std::uint64_t& kv = input.engine.kv_cache_memory;
    if (most_lacking(loads) && kv == 0 && (kv = smaller_cache(input, loads, *placement)) > 0) {
      // It may not hold one sequence any more: then steps are what can become smaller.
      if (auto fewer = plan()) {
        placement = std::move(fewer);
        loads = loads_of(input, *placement, step);
      }
    }
    const Load* worst = most_lacking(loads);
    if (!worst) return placement;
    if (!lacks)
      lacks = resource_exhausted(to_string(worst->use.device) + " lacks " +
                                 format_byte_size(worst->lacking()) + " for what a step of " +
                                 std::to_string(tokens) + " tokens computes with, " +
                                 format_byte_size(worst->compute) +
                                 "; lower --max-num-batched-tokens.");
    if (tokens / 2 < least_tokens) return *lacks;
  }
}

}  // namespace troupe
