#include "tools/troupe/plan/fit.h"

#include <algorithm>
#include <map>
#include <set>

#include "model/forward/step_memory.h"
#include "model/placement/layout_measures.h"
#include "model/spec/sizes.h"
#include "runtime/byte_size.h"
#include "runtime/limits.h"
#include "tools/troupe/plan/remedies.h"

namespace troupe {
namespace {

/// What the loss of each node would mean is a plan a node.
constexpr std::int64_t kSurvivalNodesMax = 64;
/// Rows meet at a device's experts so many times as often as if all were asked for alike.
constexpr std::int64_t kSkew = 2;

/// One question with everything settled but what the planner settles.
class Trial {
 public:
  explicit Trial(const FitQuestion& q)
      : q_(q), costs_(model_costs(q.spec, *q.engine.numerics)) {
    input_.base.devices = devices_of(q.nodes);
    input_.base.model = costs_;
    input_.base.engine = q.engine;
    input_.base.numerics = *q.engine.numerics;
    input_.base.version = PlacementVersion{1};
    input_.num_groups = q.spec.expert_groups();
    for (const auto& d : input_.base.devices)
      if (q.tier_memory > 0) input_.tier_bytes[d.device.node] = q.tier_memory;
  }

  /// With the flags as they are. A cache that leaves too little for computing is made smaller.
  Result<Fit> run() {
    auto fit = plan();
    if (!fit) return fit;
    const auto lacking = most_lacking(*fit);
    if (!lacking) return fit;
    std::uint64_t& kv = input_.base.engine.kv_cache_memory;
    if (kv == 0 && (kv = smaller_cache(*fit)) > 0) {
      fit = plan();
      if (fit && !most_lacking(*fit)) return fit;
      if (!fit) return fit;
    }
    const DeviceFit& device = fit->devices[*lacking];
    return resource_exhausted(
        to_string(device.use.device) + " lacks " +
        format_byte_size(device.total() - std::min(device.total(), device.memory)) +
        " for what a step of " + std::to_string(input_.base.engine.max_num_batched_tokens) +
        " tokens computes with, " + format_byte_size(device.scratch_bytes) +
        "; lower --max-num-batched-tokens.");
  }

  /// Of a layout that fits.
  void look_at_losses(Fit& fit) {
    fit.experts = static_cast<std::int64_t>(expert_layers(costs_).size()) * costs_.num_experts;
    fit.experts_surviving = experts_surviving_any_node_loss(in_memory(fit.placement));
    if (node_count(q_.nodes) > kSurvivalNodesMax) return;
    ReplanInput input = input_;
    input.before = fit.placement;
    fit.survival = survival_of(input);
  }

 private:
  Result<Fit> plan() {
    auto placement = plan_placement(input_.base);
    if (!placement) return placement.error();
    if (q_.tier_memory > 0) {
      ReplanInput input = input_;
      input.before = *placement;
      if (auto goal = goal_placement(input)) placement->tier = std::move(goal->tier);
    }
    Fit fit;
    fit.engine = input_.base.engine;
    fit.placement = std::move(*placement);
    measure(fit);
    return fit;
  }

  void measure(Fit& fit) const {
    std::map<DeviceRef, std::uint64_t> memory, scratch = scratch_of(fit.placement), spare;
    for (const auto& d : input_.base.devices) memory[d.device] = d.memory_total;
    for (const auto& layer : fit.placement.experts) {
      std::set<std::int32_t> seen;
      for (const auto& slot : layer.slots)
        if (!seen.insert(slot.expert).second) spare[slot.device] += costs_.expert_bytes;
    }
    for (const DeviceUse& use : placement_use(input_.base, fit.placement))
      fit.devices.push_back({use, spare[use.device], scratch[use.device], memory[use.device]});
    for (const auto& replica : fit.placement.replicas) {
      const std::uint64_t tokens = static_cast<std::uint64_t>(replica.kv_blocks) *
                                   static_cast<std::uint64_t>(fit.engine.block_size);
      fit.kv_tokens += tokens;
      if (fit.kv_tokens_min == 0 || tokens < fit.kv_tokens_min) fit.kv_tokens_min = tokens;
    }
  }

  std::map<DeviceRef, std::uint64_t> scratch_of(const Placement& placement) const {
    const EngineOptions& engine = input_.base.engine;
    StepLoad load;
    load.numerics = input_.base.numerics;
    load.rows = std::min(engine.max_num_batched_tokens, limits::kStepRowsMax);
    load.positions = engine.max_model_len;
    load.in_flight = engine.pipeline_parallel_size;
    load.threads = q_.threads;
    std::map<DeviceRef, std::uint64_t> bytes;
    // Stages of all replicas are the same ranges of layers.
    std::map<std::uint32_t, std::uint64_t> stages;
    for (const auto& shard : placement.shards) {
      std::uint64_t& stage = stages[shard.stage];
      if (stage == 0)
        stage = shard_memory_bytes(q_.spec, shard.first_layer, shard.last_layer, load);
      bytes[shard.device] += stage;
    }
    if (input_.base.devices.size() == 1) return bytes;  // its experts are all at hand
    const auto rows = static_cast<std::int64_t>(placement.replicas.size()) * load.rows;
    std::map<std::int64_t, std::uint64_t> groups;
    for (const auto& [device, slots] : most_slots(placement)) {
      const std::int64_t copies = std::max<std::int64_t>(1, copies_a_layer(placement));
      const std::int64_t even = (rows * q_.spec.top_k() * slots + copies - 1) / copies;
      const std::int64_t pairs =
          std::min(kSkew * even, rows * std::min<std::int64_t>(q_.spec.top_k(), slots));
      std::uint64_t& group = groups[pairs];
      if (group == 0) group = group_memory_bytes(q_.spec, load, pairs);
      bytes[device] += group;
    }
    return bytes;
  }

  static std::int64_t copies_a_layer(const Placement& placement) {
    std::size_t least = placement.experts.empty() ? 0 : placement.experts.front().slots.size();
    for (const auto& layer : placement.experts) least = std::min(least, layer.slots.size());
    return static_cast<std::int64_t>(least);
  }

  /// Of the layer that has most copies on a device.
  static std::map<DeviceRef, std::int64_t> most_slots(const Placement& placement) {
    std::map<DeviceRef, std::int64_t> most;
    for (const auto& layer : placement.experts) {
      std::map<DeviceRef, std::int64_t> slots;
      for (const auto& slot : layer.slots) ++slots[slot.device];
      for (const auto& [device, count] : slots) most[device] = std::max(most[device], count);
    }
    return most;
  }

  /// The device that has the least memory for what is to be on it, if there is one without enough.
  static std::optional<std::size_t> most_lacking(const Fit& fit) {
    std::optional<std::size_t> worst;
    std::uint64_t lacks = 0;
    for (std::size_t i = 0; i < fit.devices.size(); ++i) {
      const DeviceFit& d = fit.devices[i];
      if (d.total() <= d.memory || d.total() - d.memory <= lacks) continue;
      worst = i;
      lacks = d.total() - d.memory;
    }
    return worst;
  }

  /// A cache for each shard with which computing has room; 0: there is none.
  std::uint64_t smaller_cache(const Fit& fit) const {
    std::map<DeviceRef, std::uint64_t> shards;
    for (const auto& shard : fit.placement.shards) ++shards[shard.device];
    std::uint64_t least = 0;
    for (const DeviceFit& d : fit.devices) {
      if (shards[d.use.device] == 0) continue;
      const std::uint64_t over = d.total() - std::min(d.total(), d.memory);
      const std::uint64_t left = d.use.kv_bytes - std::min(d.use.kv_bytes, over);
      const std::uint64_t each = left / shards[d.use.device] >> 20 << 20;
      if (each == 0) return 0;
      least = least == 0 ? each : std::min(least, each);
    }
    return least;
  }

  /// The copies that are served, and those of the second tier.
  static std::vector<LayerExperts> in_memory(const Placement& placement) {
    std::vector<LayerExperts> layers = placement.experts;
    for (const auto& kept : placement.tier)
      for (auto& layer : layers)
        if (layer.layer == kept.layer)
          layer.slots.insert(layer.slots.end(), kept.slots.begin(), kept.slots.end());
    return layers;
  }

  const FitQuestion& q_;
  const ModelCosts costs_;
  ReplanInput input_;
};

std::uint64_t plannable(const FitQuestion& q) {
  std::uint64_t bytes = 0;
  for (const NodeGroup& g : q.nodes)
    bytes += static_cast<std::uint64_t>(g.nodes * g.devices) * plannable_bytes(g.memory);
  return bytes;
}

/// The least that there must be: one replica with one sequence, the experts with their copies.
std::uint64_t needed(const FitQuestion& q) {
  const Numerics numerics = *q.engine.numerics;
  const ModelCosts costs = model_costs(q.spec, numerics);
  const auto layers = static_cast<std::uint64_t>(costs.layers.size());
  const auto copies =
      static_cast<std::uint64_t>(costs.num_experts) +
      static_cast<std::uint64_t>(costs.num_experts > 0 ? q.engine.redundant_experts : 0);
  const std::uint64_t shards = shard_bytes(q.spec, numerics, 0, q.spec.num_layers() - 1) +
                               static_cast<std::uint64_t>(q.engine.max_model_len) *
                                   costs.kv_bytes_per_token_layer * layers;
  const auto replicas = static_cast<std::uint64_t>(std::max(1, q.engine.data_parallel_size));
  return shards * replicas + expert_layers(costs).size() * copies * costs.expert_bytes;
}

}  // namespace

Result<Fit> fewest_stages(const FitQuestion& q) {
  if (!q.choose_pipeline) return Trial(q).run();
  std::int64_t devices = 0;
  for (const NodeGroup& g : q.nodes) devices += g.nodes * g.devices;
  const std::int64_t most = needed(q) > plannable(q)
                                ? 1
                                : std::min<std::int64_t>(q.spec.num_layers(), devices);
  FitQuestion tried = q;
  std::optional<Error> first;
  for (std::int64_t stages = 1; stages <= most; ++stages) {
    tried.engine.pipeline_parallel_size = static_cast<std::int32_t>(stages);
    auto fit = Trial(tried).run();
    if (fit || fit.error().code != ErrorCode::kResourceExhausted) return fit;
    if (!first) first = fit.error();
  }
  return *first;
}

namespace {

/// Whether two copies of every expert make it survive more, at no more than half of the cache.
bool copies_pay(const Fit& with, const Fit& without) {
  return with.survival && without.survival &&
         with.survival->at_once.size() > without.survival->at_once.size() &&
         with.placement.replicas.size() == without.placement.replicas.size() &&
         with.kv_tokens >= without.kv_tokens / 2;
}

/// Devices give their caches all that is left: where the others then have no room for what a lost
/// node held, a smaller cache may leave it.
Fit with_room_for_a_loss(const FitQuestion& q, Fit fit) {
  if (q.engine.kv_cache_memory > 0 || !fit.survival || fit.survival->not_at_all.empty())
    return fit;
  std::uint64_t most = 0;
  for (const DeviceFit& d : fit.devices) most = std::max(most, d.use.kv_bytes);
  FitQuestion smaller = q;
  smaller.engine = fit.engine;
  for (const std::uint64_t part : {2, 4, 8}) {
    smaller.engine.kv_cache_memory = most / part >> 20 << 20;
    if (smaller.engine.kv_cache_memory == 0) break;
    Trial trial(smaller);
    auto found = trial.run();
    if (!found) break;
    trial.look_at_losses(*found);
    if (found->survival->not_at_all.size() < fit.survival->not_at_all.size())
      return std::move(*found);
  }
  return fit;
}

Result<Fit> best_fit(const FitQuestion& q) {
  auto fit = fewest_stages(q);
  if (!fit) return fit;
  FitQuestion settled = q;
  settled.engine = fit->engine;
  Trial(settled).look_at_losses(*fit);
  if (node_count(q.nodes) > 1) *fit = with_room_for_a_loss(q, std::move(*fit));
  if (!q.choose_redundant || q.spec.num_experts() == 0 || node_count(q.nodes) < 2) return fit;
  settled.engine.kv_cache_memory = q.engine.kv_cache_memory;
  settled.engine.redundant_experts = q.spec.num_experts();
  Trial twice(settled);
  auto safer = twice.run();
  if (!safer) return fit;
  twice.look_at_losses(*safer);
  return copies_pay(*safer, *fit) ? std::move(safer) : std::move(fit);
}

}  // namespace

Result<FitAnswer> find_fit(const FitQuestion& q) {
  FitAnswer answer;
  auto fit = best_fit(q);
  if (fit) {
    answer.fit = std::move(*fit);
    return answer;
  }
  if (fit.error().code != ErrorCode::kResourceExhausted) return fit.error();
  answer.trouble = fit.error().message;
  answer.needed = needed(q);
  answer.plannable = plannable(q);
  answer.remedies = find_remedies(q);
  return answer;
}

}  // namespace troupe
