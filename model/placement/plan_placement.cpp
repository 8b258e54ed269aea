#include "model/placement/plan_placement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "model/placement/advice.h"
#include "model/placement/compute_room.h"
#include "model/placement/rank_seats.h"
#include "model/placement/spread_experts.h"
#include "model/placement/stages.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::int64_t kStagesMax = 1 << 12;    // shard_index() gives them 12 bits
constexpr std::int64_t kReplicasMax = 1 << 16;  // and replicas 16
constexpr std::size_t kFewReplicas = 8;

Status check_input(const PlacementInput& input) {
  const auto& e = input.engine;
  const auto layers = static_cast<std::int64_t>(input.model.layers.size());
  if (layers == 0) return invalid_argument("The model has no layers to place.");
  if (input.devices.empty()) return unavailable("There is no device to place the model on.");
  if (Status s = check_tensor_size(e.tensor_parallel_size); !s) return s;
  if (e.pipeline_parallel_size < 1 || e.pipeline_parallel_size > std::min(layers, kStagesMax)) {
    return invalid_argument("--pipeline-parallel-size " + std::to_string(e.pipeline_parallel_size) +
                            " must be from 1 to the model's number of layers, " +
                            std::to_string(std::min(layers, kStagesMax)) + ".");
  }
  if (e.data_parallel_size < 0 || e.data_parallel_size >= kReplicasMax) {
    return invalid_argument("--data-parallel-size " + std::to_string(e.data_parallel_size) +
                            " must be from 0 (as many as fit) to " +
                            std::to_string(kReplicasMax - 1) + ".");
  }
  if (e.redundant_experts < 0 || e.redundant_experts > limits::kExpertsMax) {
    return invalid_argument("--redundant-experts " + std::to_string(e.redundant_experts) +
                            " must be from 0 to " + std::to_string(limits::kExpertsMax) + ".");
  }
  if (e.block_size < 1) return invalid_argument("--block-size must be at least 1.");
  if (e.max_num_seqs < 1) return invalid_argument("--max-num-seqs must be at least 1.");
  if (e.max_model_len < 1 || e.max_model_len > std::numeric_limits<std::int32_t>::max()) {
    return invalid_argument("--max-model-len " + std::to_string(e.max_model_len) +
                            " must be from 1 to " +
                            std::to_string(std::numeric_limits<std::int32_t>::max()) + ".");
  }
  return {};
}

std::size_t shards_of_replica(const EngineOptions& engine) {
  return static_cast<std::size_t>(engine.pipeline_parallel_size) *
         static_cast<std::size_t>(engine.tensor_parallel_size);
}

/// Devices in order, and what is on them so far.
class Planner {
 public:
  Planner(const PlacementInput& input, std::vector<Stage> stages)
      : input_(input),
        stages_(std::move(stages)),
        ranks_(static_cast<std::size_t>(input.engine.tensor_parallel_size)) {
    devices_ = input.devices;
    std::sort(devices_.begin(), devices_.end(),
              [](const auto& a, const auto& b) { return a.device < b.device; });
    Placement replicas = input.kept;
    replicas.experts.clear();
    const auto used = placement_use(input, replicas);
    shards_on_.assign(devices_.size(), 0);
    compute_.assign(devices_.size(), 0);
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const std::uint64_t bytes = plannable_bytes(devices_[d].memory_total);
      free_.push_back(bytes - std::min(bytes, used[d].total()));
      const auto taken = input.taken.find(devices_[d].device);
      taken_.push_back(taken == input.taken.end() ? 0 : taken->second);
      for (const auto& shard : input.kept.shards)
        shards_on_[d] += shard.device == devices_[d].device ? 1 : 0;
    }
  }

  /// `replicas`: new ones, beside those that are kept.
  Result<Placement> plan(std::size_t replicas, const ExpertLayout& lay_out, bool shards_first) {
    placement_ = input_.kept;
    placement_.experts.clear();
    replicas_ = input_.kept.replicas.size() + replicas;
    placement_.version = input_.version;
    placement_.numerics = input_.numerics;
    if (shards_first)
      if (Status s = place_shards(replicas); !s) return s.error();
    if (Status s = place_experts(lay_out); !s) return s.error();
    if (!shards_first)
      if (Status s = place_shards(replicas); !s) return s.error();
    if (Status s = size_caches(replicas); !s) return s.error();
    const auto by_place = [](const ShardPlacement& a, const ShardPlacement& b) {
      return std::tie(a.replica, a.stage, a.tp_rank) < std::tie(b.replica, b.stage, b.tp_rank);
    };
    std::sort(placement_.shards.begin(), placement_.shards.end(), by_place);
    std::sort(placement_.replicas.begin(), placement_.replicas.end(),
              [](const auto& a, const auto& b) { return a.id < b.id; });
    return std::move(placement_);
  }

 private:
  Status place_experts(const ExpertLayout& lay_out) {
    count_compute();
    std::map<DeviceRef, std::uint64_t> room, beside_compute;
    const std::uint64_t group = group_compute();
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      room.emplace_hint(room.end(), devices_[d].device, free_[d]);
      const std::uint64_t its = computes(d) ? group : 0;
      const std::uint64_t left = free_to_compute(d) - std::min(free_to_compute(d), its);
      beside_compute.emplace_hint(beside_compute.end(), devices_[d].device,
                                  std::min(free_[d], left));
    }
    auto experts = lay_out(beside_compute);
    if (!experts && room != beside_compute) experts = lay_out(room);
    if (!experts) return experts.error();
    placement_.experts = std::move(*experts);
    for (const auto& layer : placement_.experts) {
      for (const auto& slot : layer.slots) {
        std::uint64_t& free = free_[index_of(slot.device)];
        free -= std::min(free, input_.model.expert_bytes);
      }
    }
    return {};
  }

  std::size_t index_of(const DeviceRef& device) const {
    const auto at = std::lower_bound(devices_.begin(), devices_.end(), device,
                                     [](const auto& d, const auto& ref) { return d.device < ref; });
    return static_cast<std::size_t>(at - devices_.begin());
  }
  std::uint64_t shard_room(std::size_t d) const { return free_[d] - std::min(free_[d], taken_[d]); }

  /// Whether it has to have room to compute.
  bool computes(std::size_t d) const {
    return input_.compute && (input_.cpus_compute || devices_[d].kind != "cpu");
  }
  /// What the placement so far computes with.
  void count_compute() {
    if (!input_.compute) return;
    Placement so_far = placement_;
    so_far.replicas.resize(replicas_);
    auto bytes = compute_bytes(input_, so_far, *input_.compute);
    for (std::size_t d = 0; d < devices_.size(); ++d)
      compute_[d] = computes(d) ? bytes[devices_[d].device] : 0;
  }
  /// What computing with an even share of the experts takes.
  std::uint64_t group_compute() const {
    const std::int64_t copies = input_.model.num_experts + input_.engine.redundant_experts;
    const auto devices = static_cast<std::int64_t>(devices_.size());
    if (!input_.compute || devices == 1 || input_.model.num_experts == 0) return 0;
    return group_bytes(*input_.compute, replicas_, (copies + devices - 1) / devices, copies);
  }
  std::uint64_t with_reserve(std::size_t d) const {
    return free_[d] + devices_[d].memory_total - plannable_bytes(devices_[d].memory_total);
  }
  /// What computing lacks if a shard takes that much, until what it replaces is gone.
  std::uint64_t compute_lacks(std::size_t d, std::uint64_t need, const Stage& stage) const {
    const std::uint64_t all = saturating_add(saturating_add(need, stage.compute_bytes),
                                             saturating_add(compute_[d], taken_[d]));
    return computes(d) ? all - std::min(all, with_reserve(d)) : 0;
  }
  /// What is free for weights and caches if computing has its room; it may have the reserve too.
  std::uint64_t free_to_compute(std::size_t d) const {
    const std::uint64_t all = with_reserve(d);
    return all - std::min(all, compute_[d]);
  }

  bool holds(NodeId node, const Stage& stage, std::size_t rank) const {
    const auto held = input_.held_shards.find(node);
    if (held == input_.held_shards.end()) return false;
    const HeldShard shard{stage.first,
                          stage.last,
                          {static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks_)}};
    return std::find(held->second.begin(), held->second.end(), shard) != held->second.end();
  }
  std::size_t held_ranks(NodeId node, const Stage& stage) const {
    std::size_t count = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) count += holds(node, stage, rank) ? 1 : 0;
    return count;
  }

  /// An id that no kept replica has and no new one was given.
  std::uint32_t new_id() {
    const auto taken = [&](std::uint32_t id) {
      const auto has = [&](const auto& replica) { return replica.id == id; };
      return std::any_of(input_.kept.replicas.begin(), input_.kept.replicas.end(), has) ||
             std::find(ids_.begin(), ids_.end(), id) != ids_.end();
    };
    std::uint32_t id = input_.next_replica % kReplicasMax;
    while (taken(id)) id = (id + 1) % kReplicasMax;
    return id;
  }

  /// Shards go to the devices with the fewest that have room for them (rank_seats.h); so they go
  /// round while there is room, and stages that follow each other share a node.
  Status place_shards(std::size_t replicas) {
    count_compute();
    for (std::size_t r = 0; r < replicas; ++r) {
      ids_.push_back(new_id());
      for (std::size_t s = 0; s < stages_.size(); ++s)
        if (Status placed = place_stage(r, s); !placed) return placed;
    }
    return {};
  }

  /// Its ranks: on different devices as far as there are enough, else on these in turn.
  Status place_stage(std::size_t replica, std::size_t s) {
    const Stage& stage = stages_[s];
    std::vector<std::size_t> devices;
    while (devices.size() < ranks_) {
      const auto seats = best_seats(open_seats(stage), ranks_ - devices.size());
      if (seats.empty()) return no_room(replica, s, devices.size());
      for (const Seat& seat : seats) {
        free_[seat.device] -= need_of(stage);
        if (computes(seat.device)) compute_[seat.device] += stage.compute_bytes;
        ++shards_on_[seat.device];
        devices.push_back(seat.device);
      }
    }
    std::sort(devices.begin(), devices.end());  // neighbours among the ranks lie side by side
    devices = by_rank(std::move(devices), stage);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      shard_device_.push_back(devices[rank]);
      placement_.shards.push_back({ids_.back(), static_cast<std::uint32_t>(s),
                                   static_cast<std::uint32_t>(rank), stage.first, stage.last,
                                   devices_[devices[rank]].device});
    }
    return {};
  }

  static std::uint64_t need_of(const Stage& stage) {
    return saturating_add(stage.weight_bytes, stage.least_kv);
  }

  /// Devices with room for one more shard of the stage.
  std::vector<Seat> open_seats(const Stage& stage) const {
    const std::uint64_t need = need_of(stage);
    std::vector<Seat> seats;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      if (shard_room(d) < need || input_.closed.contains(devices_[d].device)) continue;
      if (compute_lacks(d, need, stage) > 0) continue;
      const NodeId node = devices_[d].device.node;
      const bool known = !seats.empty() && seats.back().node == node;
      seats.push_back(
          {d, node, shards_on_[d], known ? seats.back().held : held_ranks(node, stage)});
    }
    return seats;
  }

  /// In the order of the ranks: each on a node that has its weights in memory, if one of these has.
  std::vector<std::size_t> by_rank(std::vector<std::size_t> devices, const Stage& stage) const {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const auto from = devices.begin() + static_cast<std::ptrdiff_t>(rank);
      const auto holder = std::find_if(from, devices.end(), [&](std::size_t d) {
        return holds(devices_[d].device.node, stage, rank);
      });
      if (holder != devices.end()) std::rotate(from, holder, holder + 1);
    }
    return devices;
  }

  /// Of the first rank that has none.
  Error no_room(std::size_t replica, std::size_t s, std::size_t rank) const {
    const Stage& stage = stages_[s];
    const std::uint64_t need = need_of(stage);
    std::optional<std::size_t> roomiest;  // it only has no room to compute
    for (std::size_t d = 0; d < devices_.size(); ++d)
      if (shard_room(d) >= need && !input_.closed.contains(devices_[d].device) &&
          (!roomiest || compute_lacks(d, need, stage) < compute_lacks(*roomiest, need, stage)))
        roomiest = d;
    if (roomiest)
      return lacks_room_to_compute(*input_.compute, devices_[*roomiest].device,
                                   compute_[*roomiest] + stage.compute_bytes,
                                   compute_lacks(*roomiest, need, stage));
    std::size_t most = 0;
    for (std::size_t d = 0; d < devices_.size(); ++d)
      if (shard_room(d) > shard_room(most)) most = d;
    const std::uint64_t lacking = need - std::min(need, shard_room(most));
    return resource_exhausted(
        "Replica " + std::to_string(replica) + " does not fit: layers " +
        std::to_string(stage.first) + "-" + std::to_string(stage.last) +
        (ranks_ > 1 ? ", rank " + std::to_string(rank) + " of " + std::to_string(ranks_) + ","
                    : "") +
        " need " + bytes_text(stage.weight_bytes) + " of weights and " +
        bytes_text(stage.least_kv) + " of KV cache, and the device with the most room, " +
        to_string(devices_[most].device) + ", lacks " + bytes_text(lacking) + ". " +
        advice_for_shards(input_.engine,
                          {input_.model.layers.size(), stage.sequence_bytes, lacking}));
  }

  /// place_shards() has set least_kv aside; what is left is shared out here.
  Status size_caches(std::size_t replicas) {
    count_compute();
    for (const std::size_t d : shard_device_) {
      if (const std::uint64_t lacking = compute_lacks(d, 0, {}))
        return lacks_room_to_compute(*input_.compute, devices_[d].device, compute_[d], lacking);
    }
    for (std::size_t r = 0; r < replicas; ++r) {
      std::uint64_t blocks = limits::kStepBlocksMax;
      const std::size_t first = r * stages_.size() * ranks_;
      for (std::size_t i = 0; i < stages_.size() * ranks_; ++i)
        blocks = std::min(blocks, shard_blocks(stages_[i / ranks_], shard_device_[first + i]));
      const std::uint64_t sequence =
          ceil_div(input_.engine.max_model_len, input_.engine.block_size);
      if (blocks < sequence) return cache_too_small();
      const NodeId node = devices_[shard_device_[first]].device.node;
      placement_.replicas.push_back({ids_[r], node, static_cast<std::int32_t>(blocks)});
    }
    return {};
  }

  std::uint64_t shard_blocks(const Stage& stage, std::size_t d) const {
    const auto& engine = input_.engine;
    if (stage.block_bytes == 0) {
      return ceil_div(engine.max_model_len, engine.block_size) *
             static_cast<std::uint64_t>(engine.max_num_seqs);
    }
    if (engine.kv_cache_memory > 0) return engine.kv_cache_memory / stage.block_bytes;
    const std::uint64_t share = stage.sequence_bytes + shard_room(d) / shards_on_[d];
    std::uint64_t budget = share;
    if (devices_[d].kind == "cpu") budget = std::min(share / 2, kCpuKvCacheBytesMax);
    const std::uint64_t to_compute = free_to_compute(d) - std::min(free_to_compute(d), taken_[d]);
    budget = std::min(budget, stage.sequence_bytes + to_compute / shards_on_[d]);
    const std::uint64_t useful =
        saturating_mul(stage.sequence_bytes, static_cast<std::uint64_t>(engine.max_num_seqs));
    budget = std::clamp(budget, stage.sequence_bytes, useful);
    return budget / stage.block_bytes;
  }

  Error cache_too_small() const {
    const auto heaviest = std::max_element(
        stages_.begin(), stages_.end(),
        [](const Stage& a, const Stage& b) { return a.sequence_bytes < b.sequence_bytes; });
    const std::uint64_t given = input_.engine.kv_cache_memory;
    const std::uint64_t lacking =
        heaviest->sequence_bytes > given ? heaviest->sequence_bytes - given : 0;
    return resource_exhausted(
        "--kv-cache-memory " + bytes_text(given) + " does not hold one sequence of " +
        std::to_string(input_.engine.max_model_len) + " tokens: layers " +
        std::to_string(heaviest->first) + "-" + std::to_string(heaviest->last) + " lack " +
        bytes_text(lacking) + "; raise it or lower --max-model-len.");
  }

  const PlacementInput& input_;
  std::vector<Stage> stages_;  // each is that of every rank
  std::size_t ranks_;          // of a stage
  std::vector<PlacementDevice> devices_;
  std::vector<std::uint64_t> free_;        // of each device
  std::vector<std::uint64_t> taken_;       // of that, until the new replicas serve
  std::vector<std::uint64_t> compute_;     // what computing takes on each, as far as it is placed
  std::vector<std::size_t> shards_on_;     // of each device
  std::vector<std::size_t> shard_device_;  // of each new shard in order, index into devices_
  std::vector<std::uint32_t> ids_;         // of the new replicas
  std::size_t replicas_ = 0;               // with those that are kept
  Placement placement_;
};

}  // namespace

std::uint64_t kv_block_bytes(const PlacementInput& input, std::int32_t first, std::int32_t last) {
  const auto layers = static_cast<std::uint64_t>(last - first + 1);
  const std::uint64_t token =
      input.model.kv_bytes_per_token_layer * layers + input.model.kv_bytes_per_token;
  return saturating_mul(token, static_cast<std::uint64_t>(input.engine.block_size));
}

Result<Placement> plan_placement(const PlacementInput& input) {
  return plan_placement(input, [&](const auto& room) -> Result<std::vector<LayerExperts>> {
    const auto layers = expert_layers(input.model);
    if (layers.empty()) return std::vector<LayerExperts>{};
    const ExpertShares shares = shares_of(input.model, input.engine.redundant_experts, room);
    if (shares.lacking > 0) return experts_lack_room(input.model, input.engine, room);
    std::vector<DeviceRef> devices;
    for (const auto& [device, bytes] : room) devices.push_back(device);
    return spread_experts(layers, input.model.num_experts, shares, devices);
  });
}

namespace {

/// As many replicas as can be, up to those that are wanted.
Result<Placement> plan_replicas(const PlacementInput& input, const ExpertLayout& lay_out) {
  if (Status s = check_input(input); !s) return s.error();
  const std::vector<Stage> stages = make_stages(input);
  const std::size_t kept = input.kept.replicas.size();
  const bool counted = input.engine.data_parallel_size > 0;
  const auto open = static_cast<std::size_t>(
      std::count_if(input.devices.begin(), input.devices.end(),
                    [&](const auto& d) { return !input.closed.contains(d.device); }));
  const std::size_t wanted =
      counted ? static_cast<std::size_t>(input.engine.data_parallel_size)
              : std::clamp<std::size_t>(open / shards_of_replica(input.engine), 1,
                                        static_cast<std::size_t>(kReplicasMax) - 1);
  const std::size_t most = wanted - std::min(wanted, kept);
  const std::size_t least = counted ? most : kept > 0 ? 0 : 1;
  // With experts first it is asked for the same room again and again.
  std::optional<std::pair<std::map<DeviceRef, std::uint64_t>, Result<std::vector<LayerExperts>>>>
      last;
  const ExpertLayout remembered = [&](const auto& room) {
    if (!last || last->first != room) last.emplace(room, lay_out(room));
    return last->second;
  };
  std::optional<Error> error;
  for (const bool shards_first : {false, true}) {
    std::optional<Placement> best;
    std::size_t low = least, high = most + 1;  // the most that fit are from low, and below high
    for (std::size_t replicas = most; low < high;) {
      auto placement = Planner(input, stages).plan(replicas, remembered, shards_first);
      if (placement) {
        best = std::move(*placement);
        low = replicas + 1;
      } else {
        high = replicas;
        if (replicas == least && !error) error = placement.error();
      }
      // One less while there are few; where there are many, laying out for each would take long.
      replicas = most - least > kFewReplicas ? (low + high) / 2 : high - 1;
    }
    if (best) return std::move(*best);
  }
  return *error;
}

std::int64_t cache_blocks(const Placement& placement) {
  std::int64_t blocks = 0;
  for (const auto& replica : placement.replicas) blocks += replica.kv_blocks;
  return blocks;
}

}  // namespace

Result<Placement> plan_placement(const PlacementInput& input, const ExpertLayout& lay_out) {
  auto placement = plan_replicas(input, lay_out);
  if (!placement || shards_of_replica(input.engine) == 1) return placement;
  std::map<std::string, std::uint64_t> largest;
  for (const auto& d : input.devices)
    if (!input.closed.contains(d.device))
      largest[d.kind] = std::max(largest[d.kind], d.memory_total);
  PlacementInput without = input;
  for (const auto& d : input.devices)
    if (d.memory_total < largest[d.kind] / 2) without.closed.insert(d.device);
  if (without.closed == input.closed) return placement;
  auto roomier = plan_replicas(without, lay_out);
  return roomier && cache_blocks(*roomier) / 2 >= cache_blocks(*placement) ? roomier : placement;
}

std::vector<DeviceUse> placement_use(const PlacementInput& input, const Placement& placement) {
  std::vector<DeviceUse> uses;
  for (const auto& d : input.devices) uses.push_back({d.device});
  std::sort(uses.begin(), uses.end(),
            [](const auto& a, const auto& b) { return a.device < b.device; });
  const auto use_of = [&](const DeviceRef& device) -> DeviceUse* {
    const auto at = std::lower_bound(uses.begin(), uses.end(), device,
                                     [](const auto& u, const auto& ref) { return u.device < ref; });
    return at == uses.end() || at->device != device ? nullptr : &*at;
  };
  const auto weights = layer_weights(input.model);
  std::map<std::uint32_t, std::uint64_t> blocks;
  for (const auto& r : placement.replicas) blocks[r.id] = static_cast<std::uint64_t>(r.kv_blocks);
  for (const auto& shard : placement.shards) {
    DeviceUse* use = use_of(shard.device);
    if (!use) continue;
    for (std::int32_t l = shard.first_layer; l <= shard.last_layer; ++l) {
      use->shard_bytes += weights[static_cast<std::size_t>(l)];
    }
    use->kv_bytes +=
        kv_block_bytes(input, shard.first_layer, shard.last_layer) * blocks.at(shard.replica);
  }
  for (const auto& layer : placement.experts)
    for (const auto& slot : layer.slots)
      if (DeviceUse* use = use_of(slot.device)) use->expert_bytes += input.model.expert_bytes;
  return uses;
}

}  // namespace troupe
