#include "actors/supervisor/inheritance.h"

#include <algorithm>
#include <span>
#include <utility>

#include "actors/supervisor/versions.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

/// As long as a worker may pause between two looks for a head, and some for it to join.
constexpr Duration kWait = limits::kSeekBackoffMax + std::chrono::milliseconds(500);
/// Versions and replicas are numbered on from there.
constexpr std::uint64_t kVersionMax = 1u << 30;
constexpr std::uint32_t kReplicaMax = 1u << 15;
/// The earlier head may have given some more numbers, in versions that never came into force.
constexpr std::uint32_t kReplicasTried = 64;

/// Whether replicas of one would compute as those of the other. What a request may ask for, and
/// how large steps are, is not theirs; where the checkpoint lies is each worker's.
bool same_engine(EngineOptions theirs, const EngineOptions& ours) {
  theirs.model = ours.model;
  theirs.served_model_name = ours.served_model_name;
  theirs.seed = ours.seed;
  theirs.request_timeout_s = ours.request_timeout_s;
  theirs.numerics = ours.numerics;
  theirs.max_num_batched_tokens = ours.max_num_batched_tokens;
  return theirs == ours;
}

/// Whether the shards of a replica have each layer once, a stage after the other. Each stage has
/// all of its ranks, in order; where they lie is not asked here.
bool has_all_layers(std::span<const ShardPlacement> shards, std::int32_t layers) {
  std::int32_t next = 0;
  std::uint32_t stage = 0;
  for (const ShardPlacement& shard : shards) {
    if (shard.tp_rank != 0) continue;
    if (shard.stage != stage++ || shard.first_layer != next) return false;
    next = shard.last_layer + 1;
  }
  return next == layers;
}

/// Whether it can be a placement of that model.
bool possible(const Placement& placement, const ModelCosts& model) {
  const auto layers = static_cast<std::int32_t>(model.layers.size());
  std::set<std::uint32_t> replicas;
  for (const auto& replica : placement.replicas) {
    const auto its =
        std::ranges::equal_range(placement.shards, replica.id, {}, &ShardPlacement::replica);
    const bool here = std::ranges::any_of(
        its, [&](const auto& shard) { return shard.device.node == replica.node; });
    if (replica.id >= kReplicaMax || !replicas.insert(replica.id).second || !here ||
        !has_all_layers({its.begin(), its.end()}, layers))
      return false;
  }
  const bool shards = std::ranges::all_of(
      placement.shards, [&](const auto& shard) { return replicas.contains(shard.replica); });
  const auto experts = [&](const std::vector<LayerExperts>& all) {
    return std::ranges::all_of(all, [&](const LayerExperts& layer) {
      return layer.layer < layers &&
             model.layers[static_cast<std::size_t>(layer.layer)].has_experts &&
             std::ranges::all_of(layer.slots,
                                 [&](const auto& slot) { return slot.expert < model.num_experts; });
    });
  };
  return placement.version.value > 0 && placement.version.value < kVersionMax && shards &&
         experts(placement.experts) && experts(placement.tier);
}

}  // namespace

bool Inheritance::present(NodeId node, const Membership& members) const {
  const auto accepted = accepted_.find(node);
  const Member* member = members.find(node);
  return accepted != accepted_.end() && member && member->incarnation == accepted->second;
}

/// Once in the life of a head: it may have ended since.
bool Inheritance::may_go_on(const Join& join, const SupervisorOptions& options,
                            const Membership& members) const {
  const HeldRole& role = *join.held_role;
  const auto same_life = [&](const auto& its) { return its.second == role.incarnation; };
  return join.held_cluster == options.cluster_id && join.held_id.value != 0 &&
         join.held_id.value < kHeldIdMax && !members.find(join.held_id) &&
         !accepted_.contains(join.held_id) && role.incarnation.value != 0 &&
         role.incarnation < options.incarnation && std::ranges::none_of(accepted_, same_life);
}

bool Inheritance::sound(const Join& join, const SupervisorOptions& options,
                        const Membership& members, const ModelCosts& model) const {
  const HeldRole& role = *join.held_role;
  const std::int32_t step_tokens = role.engine.max_num_batched_tokens;
  return role.placement.numerics == members.numerics() &&
         same_engine(role.engine, options.engine) && step_tokens >= 1 &&
         step_tokens <= limits::kStepRowsMax && possible(role.placement, model) &&
         nodes_with_parts(role.placement).contains(join.held_id);
}

/// A life that a peer has heard to be lost is fenced there for ever.
bool Inheritance::fits_the_first(const Join& join) const {
  const HeldRole& role = *join.held_role;
  return role.placement == role_.placement && role.engine == role_.engine &&
         nodes_.contains(join.held_id) && !lost_.contains(join.held_id) &&
         std::ranges::none_of(role.lost, [&](NodeId node) { return accepted_.contains(node); });
}

bool Inheritance::goes_on(const Join& join, const SupervisorOptions& options,
                          const Membership& members, const ModelCosts& model, TimePoint now) {
  if (state_ == State::kTaken) return false;
  if (!deadline_) deadline_ = now + kWait;
  if (!join.held_role || !may_go_on(join, options, members)) return false;
  const HeldRole& role = *join.held_role;
  const bool first = state_ == State::kNothing || role.placement.version > role_.placement.version;
  if (first ? !sound(join, options, members, model) : !fits_the_first(join)) return false;
  if (first) {
    for (const auto& [node, life] : accepted_)
      if (present(node, members)) superseded_.push_back(node);
    state_ = State::kWaits;
    role_ = role;
    nodes_ = nodes_with_parts(role.placement);
    lost_.clear();
  }
  accepted_[join.held_id] = role.incarnation;
  for (const NodeId node : role.lost)
    if (nodes_.contains(node)) lost_.insert(node);
  return true;
}

bool Inheritance::waits(const Membership& members, TimePoint now) const {
  if (state_ == State::kTaken || (deadline_ && now >= *deadline_)) return false;
  if (state_ == State::kNothing) return expected_;
  return std::ranges::any_of(
      nodes_, [&](NodeId node) { return !lost_.contains(node) && !present(node, members); });
}

std::optional<Inheritance::Taken> Inheritance::take(const Membership& members) {
  deadline_.reset();
  if (std::exchange(state_, State::kTaken) != State::kWaits) return std::nullopt;
  Taken taken;
  for (const NodeId node : nodes_)
    (present(node, members) ? taken.nodes : taken.missing).insert(node);
  if (taken.nodes.empty()) return std::nullopt;
  auto devices = members.devices();
  std::erase_if(devices, [&](const auto& d) { return !taken.nodes.contains(d.device.node); });
  taken.placement = living_part(role_.placement, devices);
  taken.whole = same_parts(taken.placement, role_.placement);
  for (const auto& replica : role_.placement.replicas) {
    const auto its =
        std::ranges::equal_range(role_.placement.shards, replica.id, {}, &ShardPlacement::replica);
    const bool spans_missing = std::ranges::any_of(
        its, [&](const auto& shard) { return taken.missing.contains(shard.device.node); });
    const bool lives =
        std::ranges::count(taken.placement.replicas, replica.id, &ReplicaPlacement::id) > 0;
    taken.shards_left = taken.shards_left || (!lives && !spans_missing);
  }
  taken.step_tokens = role_.engine.max_num_batched_tokens;
  for (const auto& replica : role_.placement.replicas)
    taken.next_replica = std::max(taken.next_replica, replica.id + 1 + kReplicasTried);
  return taken;
}

}  // namespace troupe
