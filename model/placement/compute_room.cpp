#include "model/placement/compute_room.h"

#include <algorithm>
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

std::vector<Load> loads_of(const PlacementInput& input, const Placement& placement, bool cpus) {
  std::map<DeviceRef, std::uint64_t> memory,
      compute = compute_bytes(input, placement, *input.compute);
  for (const auto& d : input.devices)
    if (cpus || d.kind != "cpu") memory[d.device] = d.memory_total;
  std::vector<Load> loads;
  for (const DeviceUse& use : placement_use(input, placement))
    if (const auto its = memory.find(use.device); its != memory.end())
      loads.push_back({use, compute[use.device], its->second});
  return loads;
}

/// The one that lacks most, if one lacks anything.
const Load* most_lacking(const std::vector<Load>& loads) {
  const auto worst = std::max_element(loads.begin(), loads.end(), [](const Load& a, const Load& b) {
    return a.lacking() < b.lacking();
  });
  return worst == loads.end() || worst->lacking() == 0 ? nullptr : &*worst;
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

/// What all replicas compute at a time.
std::int64_t rows_of(const Placement& placement, std::int32_t tokens) {
  return static_cast<std::int64_t>(placement.replicas.size()) * tokens;
}

}  // namespace

std::uint64_t group_bytes(const ComputeCosts& costs, std::size_t replicas, std::int64_t slots,
                          std::int64_t copies) {
  const auto rows = static_cast<std::int64_t>(replicas) * (costs.rows + costs.express_rows);
  const std::int64_t even = (rows * costs.top_k * slots + copies - 1) / copies;
  return costs.group(std::min(kSkew * even, rows * std::min<std::int64_t>(costs.top_k, slots)));
}

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
  const std::int64_t copies = std::max<std::int64_t>(1, copies_a_layer(placement));
  std::map<std::int64_t, std::uint64_t> groups;
  for (const auto& [device, slots] : most_slots(placement)) {
    std::uint64_t& group = groups[slots];
    if (group == 0) group = group_bytes(costs, placement.replicas.size(), slots, copies);
    bytes[device] += group;
  }
  return bytes;
}

Error lacks_room_to_compute(const ComputeCosts& costs, const DeviceRef& device, std::uint64_t bytes,
                            std::uint64_t lacking) {
  const bool smallest = costs.rows / 2 < kStepTokensMin;
  return resource_exhausted(
      to_string(device) + " lacks " + format_byte_size(lacking) + " for what " +
      (smallest ? "even " : "") + "steps of " + std::to_string(costs.rows) +
      " tokens compute with, " + format_byte_size(bytes) + "; lower " +
      (smallest ? "--max-model-len or" : "--max-num-batched-tokens or --max-model-len, or") +
      " give it more memory.");
}

Status room_to_compute(const PlacementInput& input, const Placement& placement, bool cpus) {
  const std::vector<Load> loads = loads_of(input, placement, cpus);
  const Load* worst = most_lacking(loads);
  if (!worst) return {};
  return lacks_room_to_compute(*input.compute, worst->use.device, worst->compute, worst->lacking());
}

std::map<DeviceRef, std::uint64_t> accelerators_lacking(const PlacementInput& input,
                                                        const Placement& placement) {
  std::map<DeviceRef, std::uint64_t> lacking;
  for (const Load& load : loads_of(input, placement, false))
    if (load.lacking() > 0) lacking[load.use.device] = load.lacking();
  return lacking;
}

std::uint64_t accelerators_lack(const PlacementInput& input, const Placement& placement) {
  std::uint64_t most = 0;
  for (const auto& [device, bytes] : accelerators_lacking(input, placement))
    most = std::max(most, bytes);
  return most;
}

Result<Placement> plan_to_compute(PlacementInput& input, const CostsOfSteps& costs,
                                  const std::function<Result<Placement>()>& plan,
                                  std::int32_t least_tokens) {
  const std::int32_t asked = input.engine.max_num_batched_tokens;
  input.compute.reset();
  const auto whole = plan();  // weights and caches, whatever a step has
  if (!whole) return whole;
  Status room;
  std::optional<Placement> best;
  std::int32_t best_tokens = asked;
  for (std::int32_t tokens = asked;; tokens /= 2) {
    input.engine.max_num_batched_tokens = tokens;
    input.compute = costs(tokens);
    room = room_to_compute(input, *whole);
    auto placement = room ? whole : plan();
    if (placement && room_to_compute(input, *placement) &&
        (!best || rows_of(*placement, tokens) >= rows_of(*best, best_tokens))) {
      best = std::move(*placement);
      best_tokens = tokens;
    }
    if (best && best->replicas.size() >= whole->replicas.size()) break;
    if (tokens / 2 < least_tokens) break;
  }
  input.engine.max_num_batched_tokens = best_tokens;
  input.compute = costs(best_tokens);
  if (!best) return room.error();
  return std::move(*best);
}

}  // namespace troupe
