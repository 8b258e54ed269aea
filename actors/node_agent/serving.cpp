#include "actors/node_agent/serving.h"

#include "actors/expert_group/expert_group.h"
#include "model/memory_estimate.h"

namespace troupe {

Result<std::unique_ptr<Serving>> Serving::start(const NodeContext& context, Part part) {
  std::unique_ptr<Serving> serving(new Serving(context, std::move(part)));
  serving->members_[serving->part_.node] = serving->part_.incarnation;
  for (const auto& peer : serving->part_.work.peers) serving->members_[peer.id] = peer.incarnation;
  if (const Status started = serving->start_groups(); !started.ok()) return started.error();
  if (const Status started = serving->start_shards(); !started.ok()) return started.error();
  if (const Status started = serving->start_replicas(); !started.ok()) return started.error();
  return serving;
}

Serving::~Serving() { stop(); }

Address Serving::here(ActorKind kind, std::uint32_t index) const {
  return {part_.node, part_.incarnation, {kind, index}};
}

void Serving::run(const Address& address, ActorHandle actor) {
  context_.post.attach(address, actor);
  actors_.emplace_back(address, std::move(actor));
}

Status Serving::start_groups() {
  const auto& work = part_.work;
  const std::uint64_t each = expert_bytes(part_.model, work.placement.numerics);
  for (const auto& device : context_.devices) {
    const std::uint32_t index = device->options().index;
    auto experts = part_.weights.experts[index];
    auto claim = device->claim(experts.size() * each,
                               "Holding " + std::to_string(experts.size()) + " experts");
    if (!claim.ok()) return claim.error();
    expert_claims_.push_back(std::move(*claim));
    device->publish(std::make_shared<const ExpertSet>(work.version, std::move(experts)));
    const Address address = here(ActorKind::kExpertGroup, index);
    run(address, spawn_expert_group(context_.system, std::make_shared<ExpertGroup>(
                                                         part_.model, work.placement.numerics,
                                                         address, context_.post, *device)));
  }
  return {};
}

Status Serving::start_shards() {
  const auto routes = std::make_shared<const ExpertRoutes>(part_.work.placement);
  for (std::size_t i = 0; i < part_.work.shards.size(); ++i) {
    const Status started = start_shard(part_.work.shards[i], part_.weights.shards[i], routes);
    if (!started.ok()) return started;
  }
  return {};
}

Status Serving::start_shard(const ShardPlacement& placement,
                            std::shared_ptr<const ShardWeights> weights,
                            const std::shared_ptr<const ExpertRoutes>& routes) {
  const auto& work = part_.work;
  const Numerics numerics = work.placement.numerics;
  if (placement.device.index >= context_.devices.size())
    return internal_error("The placement names a device that this node does not have.");
  Device& device = *context_.devices[placement.device.index];
  const ReplicaPlacement* replica = nullptr;
  for (const auto& r : work.placement.replicas)
    if (r.id == placement.replica) replica = &r;
  if (!replica) return internal_error("The placement has a shard of a replica that it lacks.");

  const KvCacheSpec spec{placement.first_layer, placement.last_layer + 1, replica->kv_blocks,
                         work.engine.block_size};
  auto claim =
      device.claim(kv_cache_bytes(part_.model, numerics, spec) +
                       shard_bytes(part_.model, numerics, spec.first_layer, spec.last_layer),
                   "The shard of layers " + std::to_string(placement.first_layer) + " to " +
                       std::to_string(placement.last_layer));
  if (!claim.ok()) return claim.error();
  auto cache = KvCache::create(part_.model, numerics, spec);
  if (!cache.ok()) return cache.error();

  LayerShardConfig config;
  config.self = here(ActorKind::kLayerShard,
                     shard_index(placement.replica, placement.stage, placement.tp_rank));
  config.replica_id = placement.replica;
  config.device = placement.device;
  config.routes = routes;
  config.members = members_;
  const auto owner = members_.find(replica->node);
  if (owner == members_.end())
    return internal_error("The placement has a replica on a node that is no member.");
  config.replica = {replica->node, owner->second, {ActorKind::kReplica, replica->id}};
  for (const auto& other : work.placement.shards) {
    if (other.replica != placement.replica || other.tp_rank != placement.tp_rank) continue;
    const bool before = other.stage + 1 == placement.stage;
    if (!before && other.stage != placement.stage + 1) continue;
    auto neighbour = shard_address(other);
    if (!neighbour.ok()) return neighbour.error();
    (before ? config.previous : config.next) = *neighbour;
  }
  auto compute = std::make_shared<ShardCompute>(
      ShardCompute::Options{part_.model, numerics, std::move(weights), std::move(*cache),
                            !config.next, std::move(*claim)},
      device);
  const Address self = config.self;
  shards_.push_back(spawn_layer_shard(context_.system, context_.post, device, std::move(config),
                                      std::move(compute)));
  run(self, shards_.back().handle);
  return {};
}

Result<Address> Serving::shard_address(const ShardPlacement& shard) const {
  const auto member = members_.find(shard.device.node);
  if (member == members_.end())
    return internal_error("The placement has a shard on " + to_string(shard.device.node) +
                          ", which is no member.");
  return Address{shard.device.node,
                 member->second,
                 {ActorKind::kLayerShard, shard_index(shard.replica, shard.stage, shard.tp_rank)}};
}

Status Serving::start_replicas() {
  const auto& work = part_.work;
  for (const auto& replica : work.replicas) {
    ReplicaConfig config;
    config.id = replica.id;
    config.version = work.version;
    config.router = part_.router;
    config.stages = 0;
    for (const auto& shard : work.placement.shards) {
      if (shard.replica != replica.id) continue;
      auto address = shard_address(shard);
      if (!address.ok()) return address.error();
      config.shards.push_back(*address);
      config.stages = std::max(config.stages, static_cast<std::int32_t>(shard.stage) + 1);
    }
    config.blocks = replica.kv_blocks;
    config.block_size = work.engine.block_size;
    config.max_num_seqs = work.engine.max_num_seqs;
    config.max_num_batched_tokens = work.engine.max_num_batched_tokens;
    config.max_model_len = work.engine.max_model_len;
    const Address self = here(ActorKind::kReplica, replica.id);
    replicas_.push_back(spawn_replica(context_.system, context_.post, self, config));
    run(self, replicas_.back().handle);
  }
  return {};
}

void Serving::peer_down(NodeId node) {
  for (const auto& shard : shards_) shard.peer_down(node);
}

std::vector<ReplicaReport> Serving::reports() const {
  std::vector<ReplicaReport> reports;
  for (const auto& replica : replicas_) reports.push_back(replica.report());
  return reports;
}

std::vector<ActorHandle> Serving::stop() {
  std::vector<ActorHandle> ending;
  for (auto& [address, actor] : actors_) {
    context_.post.detach(address);
    actor.stop();
    ending.push_back(std::move(actor));
  }
  // The device would hold experts in memory that the next version does not give it.
  for (const auto& device : context_.devices)
    if (device->experts()->version() == version())
      device->publish(std::make_shared<const ExpertSet>());
  actors_.clear();
  shards_.clear();
  replicas_.clear();
  return ending;
}

}  // namespace troupe
