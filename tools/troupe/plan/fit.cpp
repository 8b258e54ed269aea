#include "tools/troupe/plan/fit.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "model/forward/step_memory.h"
#include "model/placement/compute_room.h"
#include "model/placement/layout_measures.h"
#include "model/spec/sizes.h"
#include "model/spec/split_model.h"
#include "runtime/byte_size.h"
#include "runtime/limits.h"
#include "tools/troupe/plan/remedies.h"

namespace troupe {
namespace {

/// What the loss of each node would mean is a plan a node.
constexpr std::int64_t kSurvivalNodesMax = 64;

/// The model as each tensor-parallel rank has it.
std::vector<ModelSpec> ranks_of(const FitQuestion& q) {
  return split_into(q.spec, static_cast<std::uint32_t>(q.engine.tensor_parallel_size));
}

/// One question with everything settled but what the planner settles.
class Trial {
 public:
  explicit Trial(const FitQuestion& q)
      : q_(q), ranks_(ranks_of(q)), costs_(model_costs(ranks_, *q.engine.numerics)) {
    input_.base.devices = devices_of(q.nodes);
    input_.base.model = costs_;
    input_.base.engine = q.engine;
    input_.base.numerics = *q.engine.numerics;
    input_.base.version = PlacementVersion{1};
    input_.num_groups = q.spec.expert_groups();
    for (const auto& d : input_.base.devices)
      if (q.tier_memory > 0) input_.tier_bytes[d.device.node] = q.tier_memory;
  }

  /// With the flags as they are. Where memory to compute with lacks, steps are made smaller, down
  /// to `least_tokens`.
  Result<Fit> run(std::int32_t least_tokens = kStepTokensMin) {
    auto placement = plan_to_compute(
        input_.base, [this](std::int32_t tokens) { return compute(tokens); },
        [this] { return plan(); }, least_tokens);
    if (!placement) return placement.error();
    Fit fit;
    fit.engine = input_.base.engine;
    fit.placement = std::move(*placement);
    measure(fit);
    return fit;
  }

  /// Of a layout that fits.
  void look_at_losses(Fit& fit) {
    fit.experts = static_cast<std::int64_t>(expert_layers(costs_).size()) * costs_.num_experts;
    fit.experts_surviving = experts_surviving_any_node_loss(in_memory(fit.placement));
    if (node_count(q_.nodes) > kSurvivalNodesMax) return;
    ReplanInput input = input_;
    input.before = fit.placement;
    input.base.compute.reset();  // what has served once goes on with what is left
    fit.survival = survival_of(input);
  }

 private:
  Result<Placement> plan() {
    auto placement = plan_placement(input_.base);
    if (!placement || q_.tier_memory == 0) return placement;
    ReplanInput input = input_;
    input.before = *placement;
    if (auto goal = goal_placement(input)) placement->tier = std::move(goal->tier);
    return placement;
  }

  ComputeCosts compute(std::int32_t tokens) const {
    EngineOptions engine = q_.engine;
    engine.max_num_batched_tokens = tokens;
    return compute_costs(ranks_, step_load(engine, *engine.numerics, q_.threads));
  }

  void measure(Fit& fit) const {
    std::map<DeviceRef, std::uint64_t> memory, spare;
    auto compute = compute_bytes(input_.base, fit.placement,
                                 this->compute(fit.engine.max_num_batched_tokens));
    for (const auto& d : input_.base.devices) memory[d.device] = d.memory_total;
    for (const auto& layer : fit.placement.experts) {
      std::set<std::int32_t> seen;
      for (const auto& slot : layer.slots)
        if (!seen.insert(slot.expert).second) spare[slot.device] += costs_.expert_bytes;
    }
    for (const DeviceUse& use : placement_use(input_.base, fit.placement))
      fit.devices.push_back({use, spare[use.device], compute[use.device], memory[use.device]});
    for (const auto& shard : fit.placement.shards)
      fit.kv_block_bytes = std::max(
          fit.kv_block_bytes, kv_block_bytes(input_.base, shard.first_layer, shard.last_layer));
    for (const auto& replica : fit.placement.replicas) {
      const std::uint64_t tokens = static_cast<std::uint64_t>(replica.kv_blocks) *
                                   static_cast<std::uint64_t>(fit.engine.block_size);
      fit.kv_tokens += tokens;
      if (fit.kv_tokens_min == 0 || tokens < fit.kv_tokens_min) fit.kv_tokens_min = tokens;
    }
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
  const std::vector<ModelSpec> ranks_;
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
  const std::vector<ModelSpec> ranks = ranks_of(q);
  const ModelCosts costs = model_costs(ranks, numerics);
  const auto layers = static_cast<std::uint64_t>(costs.layers.size());
  const auto copies =
      static_cast<std::uint64_t>(costs.num_experts) +
      static_cast<std::uint64_t>(costs.num_experts > 0 ? q.engine.redundant_experts : 0);
  std::uint64_t shards = 0;
  for (const ModelSpec& rank : ranks)
    shards += shard_bytes(rank, numerics, 0, rank.num_layers() - 1) +
              static_cast<std::uint64_t>(q.engine.max_model_len) * costs.kv_bytes_per_token_layer *
                  layers;
  const auto replicas = static_cast<std::uint64_t>(std::max(1, q.engine.data_parallel_size));
  return shards * replicas + expert_layers(costs).size() * copies * costs.expert_bytes;
}

}  // namespace

Result<Fit> fewest_stages(const FitQuestion& q) {
  if (!q.choose_pipeline) return Trial(q).run();
  std::int64_t devices = 0;
  for (const NodeGroup& g : q.nodes) devices += g.nodes * g.devices;
  const std::int64_t most = std::min<std::int64_t>(q.spec.num_layers(), devices);
  const std::int64_t fewest = needed(q) > plannable(q) ? most : 1;  // what lacks is all to be said
  FitQuestion tried = q;
  std::optional<Error> last;  // with the most stages: what lacks even so
  // Rather more stages than smaller steps.
  for (const std::int32_t least : {q.engine.max_num_batched_tokens, kStepTokensMin})
    for (std::int64_t stages = fewest; stages <= most; ++stages) {
      tried.engine.pipeline_parallel_size = static_cast<std::int32_t>(stages);
      auto fit = Trial(tried).run(least);
      if (fit || fit.error().code != ErrorCode::kResourceExhausted) return fit;
      last = fit.error();
    }
  return *last;
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
  for (const auto& replica : fit.placement.replicas)
    most = std::max(most, fit.kv_block_bytes * static_cast<std::uint64_t>(replica.kv_blocks));
  const std::size_t replicas = fit.placement.replicas.size();
  FitQuestion smaller = q;
  smaller.engine = fit.engine;
  for (std::uint64_t eighths = 7; eighths > 0 && !fit.survival->not_at_all.empty(); --eighths) {
    smaller.engine.kv_cache_memory = most / 8 * eighths >> 20 << 20;
    if (smaller.engine.kv_cache_memory == 0) break;
    Trial trial(smaller);
    auto found = trial.run();
    if (!found || found->placement.replicas.size() != replicas) continue;
    trial.look_at_losses(*found);
    if (found->survival->not_at_all.size() < fit.survival->not_at_all.size())
      fit = std::move(*found);
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
