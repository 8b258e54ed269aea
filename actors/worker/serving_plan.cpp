#include <algorithm>
#include <new>
#include <utility>

#include "actors/layer_shard/expert_routes.h"
#include "actors/worker/serving.h"

namespace troupe {
namespace {

std::string layers_text(const LayerRange& layers) {
  const TensorRank& rank = layers.rank;
  return "layers " + std::to_string(layers.first) + " to " + std::to_string(layers.last) +
         (rank.alone()
              ? std::string()
              : ", rank " + std::to_string(rank.rank) + " of " + std::to_string(rank.size));
}

}  // namespace

bool share_nccl(NodeId self, std::uint32_t own, const std::vector<Peer>& peers,
                const std::vector<DeviceRef>& ranks) {
  std::map<NodeId, std::uint32_t> versions = {{self, own}};
  for (const Peer& peer : peers) versions[peer.id] = peer.nccl;
  std::set<DeviceRef> devices;
  return own != 0 && std::ranges::all_of(ranks, [&](const DeviceRef& device) {
           return versions[device.node] == own && devices.insert(device).second;
         });
}

Result<std::shared_ptr<Preparation>> Serving::plan(VersionWorkPtr work,
                                                   std::shared_ptr<const ModelSizes> model,
                                                   LoadedPart weights, Reservation memory) {
  auto out = std::make_shared<Preparation>();
  out->work = std::move(work);
  out->model = std::move(model);
  out->memory = std::move(memory);
  out->experts = std::move(weights.experts);
  out->factory = context_.factory;
  out->members[self_.node] = self_.incarnation;
  for (const auto& peer : out->work->peers) out->members[peer.id] = peer.incarnation;
  const Numerics numerics = out->work->placement.numerics;
  for (const auto& [index, group] : groups_)
    if (group.numerics != numerics)
      return invalid_argument("The placement changes the numerics of a cluster that serves.");
  if (groups_.empty())
    for (Device* device : context_.devices)
      out->groups.push_back({device->options().index, {out->model, numerics, device}, {}});
  for (std::size_t i = 0; i < out->work->shards.size(); ++i) {
    const Status planned = plan_shard(out->work->shards[i], std::move(weights.shards[i]), *out);
    if (!planned.ok()) return planned.error();
  }
  for (const auto& replica : out->work->replicas)
    if (const Status planned = plan_replica(replica, *out); !planned.ok()) return planned.error();
  return out;
}

Result<Ref<LayerShardInbox>> Serving::shard_address(const ShardPlacement& shard,
                                                    const Preparation& of) const {
  const auto member = of.members.find(shard.device.node);
  if (member == of.members.end())
    return internal_error("The placement has a shard on " + to_string(shard.device.node) +
                          ", which is no member.");
  return Ref<LayerShardInbox>(shard.device.node, member->second, shard_index(shard));
}

Result<std::shared_ptr<const Device::Claim>> Serving::claim_layers(Device& device,
                                                                   const LayerRange& layers,
                                                                   std::uint64_t bytes) {
  std::erase_if(layers_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = layers_[{device.options().index, layers.first, layers.last, layers.rank}];
  if (auto claimed = known.lock()) return claimed;
  auto claim = device.claim(bytes, "The weights of " + layers_text(layers));
  if (!claim.ok()) return claim.error();
  auto shared = std::make_shared<const Device::Claim>(std::move(*claim));
  known = shared;
  return shared;
}

Result<Reservation> Serving::reserve(const VersionWork& work, const ModelSizes& model) {
  Reservation memory;
  for (const ShardPlacement& shard : work.shards)
    if (const Status claimed = reserve_shard(shard, work, model, memory); !claimed.ok())
      return claimed.error();
  if (const Status claimed = reserve_experts(work, model, memory); !claimed.ok())
    return claimed.error();
  return memory;
}

/// What it has not yet of a shard that does not live.
Status Serving::reserve_shard(const ShardPlacement& placement, const VersionWork& work,
                              const ModelSizes& model, Reservation& memory) {
  const std::uint32_t index = shard_index(placement);
  if (shards_.contains(index) || memory.caches.contains(index)) return {};
  if (placement.device.index >= context_.devices.size())
    return internal_error("The placement names a device that this node does not have.");
  const auto replica =
      std::ranges::find(work.placement.replicas, placement.replica, &ReplicaPlacement::id);
  if (replica == work.placement.replicas.end())
    return internal_error("The placement has a shard of a replica that it lacks.");
  Device& device = *context_.devices[placement.device.index];
  const LayerRange range = layers_of(placement, tensor_ranks(work.engine));
  const Numerics numerics = work.placement.numerics;
  auto layers = claim_layers(device, range, model.shard_bytes(numerics, range));
  if (!layers.ok()) return layers.error();
  memory.layers.push_back(std::move(*layers));
  auto cache =
      device.claim(model.cache_bytes(numerics, range, replica->kv_blocks, work.engine.block_size),
                   "The KV cache of " + layers_text(range));
  if (!cache.ok()) return cache.error();
  memory.caches[index] = std::move(*cache);
  return {};
}

/// Each expert's memory counts once, whichever versions give it.
Status Serving::reserve_experts(const VersionWork& work, const ModelSizes& model,
                                Reservation& memory) {
  std::map<std::uint32_t, std::set<ExpertKey>> fresh;
  for (const LayerExperts& layer : work.experts)
    for (const auto& slot : layer.slots) {
      const ExpertKey key{layer.layer, slot.expert};
      const auto group = groups_.find(slot.device.index);
      const bool held = group != groups_.end() && group->second.claims.contains(key);
      if (!held && !memory.experts[slot.device.index].contains(key))
        fresh[slot.device.index].insert(key);
    }
  const std::uint64_t each = model.expert_bytes(work.placement.numerics);
  for (const auto& [index, keys] : fresh) {
    if (index >= context_.devices.size())
      return internal_error("The placement names a device that this node does not have.");
    auto claim = context_.devices[index]->claim(
        keys.size() * each, "Holding " + std::to_string(keys.size()) + " more experts");
    if (!claim.ok()) return claim.error();
    for (const ExpertKey& key : keys) memory.experts[index][key] = claim->split(each);
  }
  return {};
}

Status Serving::plan_shard(const ShardPlacement& placement,
                           std::shared_ptr<const ShardWeights> weights, Preparation& out) {
  if (const auto live = shards_.find(shard_index(placement)); live != shards_.end()) {
    if (live->second == placement) return {};
    return invalid_argument("The placement gives the number of a replica that lives to another.");
  }
  const auto& work = *out.work;
  if (const Status claimed = reserve_shard(placement, work, *out.model, out.memory); !claimed.ok())
    return claimed;
  const auto replica =
      std::ranges::find(work.placement.replicas, placement.replica, &ReplicaPlacement::id);
  const auto owner = out.members.find(replica->node);
  if (owner == out.members.end())
    return internal_error("The placement has a replica on a node that is no member.");

  Device& device = *context_.devices[placement.device.index];
  ShardSpec spec;
  spec.layers = layers_of(placement, tensor_ranks(work.engine));
  auto layers = claim_layers(device, spec.layers,
                             out.model->shard_bytes(work.placement.numerics, spec.layers));
  if (!layers.ok()) return layers.error();

  LayerShardConfig config;
  config.self = here<LayerShardInbox>(shard_index(placement));
  config.replica = {replica->node, owner->second, replica->id};
  config.replica_id = placement.replica;
  config.device = placement.device;
  config.rank = spec.layers.rank;
  config.members = out.members;
  if (const Status s = plan_neighbours(placement, out, config); !s.ok()) return s;
  if (config.ranks.size() != config.rank.size)
    return internal_error("The placement has a shard without all of its tensor-parallel ranks.");
  config.by_nccl = !config.rank.alone() &&
                   share_nccl(self_.node, context_.nccl, work.peers, config.rank_devices);

  spec.model = out.model;
  spec.numerics = work.placement.numerics;
  spec.blocks = replica->kv_blocks;
  spec.block_size = work.engine.block_size;
  spec.last_stage = !config.next;
  spec.device = &device;
  spec.weights = std::move(weights);
  spec.counter = context_.counter;
  spec.cache_memory = std::move(out.memory.caches.extract(shard_index(placement)).mapped());
  spec.weight_memory = std::move(*layers);
  out.shards.push_back({placement, std::move(config), std::move(spec), nullptr});
  return {};
}

Status Serving::plan_neighbours(const ShardPlacement& placement, const Preparation& of,
                                LayerShardConfig& config) const {
  for (const auto& other : of.work->placement.shards) {
    if (other.replica != placement.replica) continue;
    if (other.stage == placement.stage) {  // in the order of their ranks
      auto rank = shard_address(other, of);
      if (!rank.ok()) return rank.error();
      config.ranks.push_back(*rank);
      config.rank_devices.push_back(other.device);
    }
    if (other.tp_rank != placement.tp_rank) continue;
    const bool before = other.stage + 1 == placement.stage;
    if (!before && other.stage != placement.stage + 1) continue;
    auto neighbour = shard_address(other, of);
    if (!neighbour.ok()) return neighbour.error();
    (before ? config.previous : config.next) = *neighbour;
  }
  return {};
}

Status Serving::plan_replica(const ReplicaPlacement& replica, Preparation& out) const {
  if (replicas_.contains(replica.id)) return {};
  const auto& work = *out.work;
  ReplicaConfig config;
  config.id = replica.id;
  config.version = work.version;
  config.router = self_.router;
  config.stages = 0;
  for (const auto& shard : work.placement.shards) {
    if (shard.replica != replica.id) continue;
    auto address = shard_address(shard, out);
    if (!address.ok()) return address.error();
    config.shards.push_back(*address);
    config.stages = std::max(config.stages, static_cast<std::int32_t>(shard.stage) + 1);
  }
  config.blocks = replica.kv_blocks;
  config.block_size = work.engine.block_size;
  config.prefix_caching = work.engine.prefix_caching;
  config.rows_identity =
      work.checkpoint_hash + " " + std::string(to_string(work.placement.numerics));
  config.max_num_seqs = work.engine.max_num_seqs;
  config.max_num_batched_tokens = work.engine.max_num_batched_tokens;
  config.max_model_len = work.engine.max_model_len;
  config.row_bytes = out.model->row_bytes(work.placement.numerics, tensor_ranks(work.engine));
  out.replicas.push_back(std::move(config));
  return {};
}

Status Preparation::build() {
  try {
    routes = std::make_shared<const ExpertRoutes>(work->placement);
    for (auto& group : groups) {
      auto made_pass = factory->make_pass(group.spec);
      if (!made_pass.ok()) return made_pass.error();
      group.made = std::move(*made_pass);
    }
    for (auto& shard : shards) {
      shard.config.routes = routes;
      auto made = factory->make_shard(std::move(shard.spec));
      if (!made.ok()) return made.error();
      shard.compute = std::move(*made);
    }
    return {};
  } catch (const std::bad_alloc&) {
    return resource_exhausted(
        "There is not enough memory to start the shards of this node; lower --device-memory.");
  }
}

}  // namespace troupe
