#include "actors/node_agent/serving.h"

#include <algorithm>
#include <new>
#include <utility>

#include "actors/expert_group/expert_group.h"
#include "model/memory_estimate.h"

namespace troupe {
namespace {

std::uint32_t index_of(const ShardPlacement& shard) {
  return shard_index(shard.replica, shard.stage, shard.tp_rank);
}

/// What a shard computes with, and the claim that its layers' weights share with other shards.
struct ComputeAndWeights {
  ComputeAndWeights(std::shared_ptr<Device::Claim> memory, ShardCompute::Options options,
                    Device& device)
      : weight_memory(std::move(memory)), compute(std::move(options), device) {}
  std::shared_ptr<Device::Claim> weight_memory;
  ShardCompute compute;
};

}  // namespace

Serving::~Serving() { stop(); }

Address Serving::here(ActorKind kind, std::uint32_t index) const {
  return {self_.node, self_.incarnation, {kind, index}};
}

// --- Planning -----------------------------------------------------------------------------------

Result<Serving::Preparation> Serving::plan(NodeAgentActions::Work work, const ModelConfig& model,
                                           LoadedPart weights) {
  Preparation out;
  out.work = std::move(work);
  out.model = model;
  out.experts = std::move(weights.experts);
  out.counter = context_.counter;
  out.members[self_.node] = self_.incarnation;
  for (const auto& peer : out.work.peers) out.members[peer.id] = peer.incarnation;
  for (const auto& [index, group] : groups_)
    if (group.numerics != out.work.placement.numerics)
      return invalid_argument("The placement changes the numerics of a cluster that serves.");
  for (std::size_t i = 0; i < out.work.shards.size(); ++i)
    if (const Status planned = plan_shard(out.work.shards[i], weights.shards[i], out);
        !planned.ok())
      return planned.error();
  for (const auto& replica : out.work.replicas)
    if (const Status planned = plan_replica(replica, out); !planned.ok()) return planned.error();
  return out;
}

Result<Address> Serving::shard_address(const ShardPlacement& shard, const Preparation& of) const {
  const auto member = of.members.find(shard.device.node);
  if (member == of.members.end())
    return internal_error("The placement has a shard on " + to_string(shard.device.node) +
                          ", which is no member.");
  return Address{shard.device.node, member->second, {ActorKind::kLayerShard, index_of(shard)}};
}

Result<std::shared_ptr<Device::Claim>> Serving::claim_layers(Device& device,
                                                             const ShardPlacement& shard,
                                                             const Preparation& of) {
  std::erase_if(layers_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = layers_[{shard.device.index, shard.first_layer, shard.last_layer}];
  if (auto claimed = known.lock()) return claimed;
  auto claim = device.claim(shard_bytes(of.model, of.work.placement.numerics, shard.first_layer,
                                        shard.last_layer + 1),
                            "The weights of layers " + std::to_string(shard.first_layer) + " to " +
                                std::to_string(shard.last_layer));
  if (!claim.ok()) return claim.error();
  auto shared = std::make_shared<Device::Claim>(std::move(*claim));
  known = shared;
  return shared;
}

Status Serving::plan_shard(const ShardPlacement& placement,
                           std::shared_ptr<const ShardWeights> weights, Preparation& out) {
  if (const auto live = shards_.find(index_of(placement)); live != shards_.end()) {
    if (live->second.placement == placement) return {};
    return invalid_argument("The placement gives the number of a replica that lives to another.");
  }
  const auto& work = out.work;
  if (placement.device.index >= context_.devices.size())
    return internal_error("The placement names a device that this node does not have.");
  NewShard shard;
  shard.placement = placement;
  shard.device = context_.devices[placement.device.index].get();
  shard.weights = std::move(weights);
  const ReplicaPlacement* replica = nullptr;
  for (const auto& r : work.placement.replicas)
    if (r.id == placement.replica) replica = &r;
  if (!replica) return internal_error("The placement has a shard of a replica that it lacks.");
  const auto owner = out.members.find(replica->node);
  if (owner == out.members.end())
    return internal_error("The placement has a replica on a node that is no member.");

  shard.cache = {placement.first_layer, placement.last_layer + 1, replica->kv_blocks,
                 work.engine.block_size};
  auto layers = claim_layers(*shard.device, placement, out);
  if (!layers.ok()) return layers.error();
  shard.weight_memory = std::move(*layers);
  auto memory = shard.device->claim(
      kv_cache_bytes(out.model, work.placement.numerics, shard.cache),
      "The KV cache of layers " + std::to_string(placement.first_layer) + " to " +
          std::to_string(placement.last_layer));
  if (!memory.ok()) return memory.error();
  shard.cache_memory = std::move(*memory);

  LayerShardConfig& config = shard.config;
  config.self = here(ActorKind::kLayerShard, index_of(placement));
  config.replica_id = placement.replica;
  config.device = placement.device;
  config.members = out.members;
  config.replica = {replica->node, owner->second, {ActorKind::kReplica, replica->id}};
  for (const auto& other : work.placement.shards) {
    if (other.replica != placement.replica || other.tp_rank != placement.tp_rank) continue;
    const bool before = other.stage + 1 == placement.stage;
    if (!before && other.stage != placement.stage + 1) continue;
    auto neighbour = shard_address(other, out);
    if (!neighbour.ok()) return neighbour.error();
    (before ? config.previous : config.next) = *neighbour;
  }
  out.shards.push_back(std::move(shard));
  return {};
}

Status Serving::plan_replica(const ReplicaPlacement& replica, Preparation& out) {
  if (replicas_.contains(replica.id)) return {};
  const auto& work = out.work;
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
  config.max_num_seqs = work.engine.max_num_seqs;
  config.max_num_batched_tokens = work.engine.max_num_batched_tokens;
  config.max_model_len = work.engine.max_model_len;
  out.replicas.push_back(std::move(config));
  return {};
}

Status Serving::Preparation::build() {
  try {
    routes = std::make_shared<const ExpertRoutes>(work.placement);
    const Numerics numerics = work.placement.numerics;
    for (auto& shard : shards) {
      auto cache = KvCache::create(model, numerics, shard.cache);
      if (!cache.ok()) return cache.error();
      shard.config.routes = routes;
      auto made = std::make_shared<ComputeAndWeights>(
          shard.weight_memory,
          ShardCompute::Options{model, numerics, shard.weights, std::move(*cache),
                                !shard.config.next, std::move(shard.cache_memory), counter},
          *shard.device);
      shard.compute = std::shared_ptr<ShardCompute>(made, &made->compute);
    }
    return {};
  } catch (const std::bad_alloc&) {
    return resource_exhausted(
        "There is not enough memory to start the shards of this node; lower --device-memory.");
  }
}

// --- Versions -----------------------------------------------------------------------------------

/// Each expert's memory counts once, whichever versions give it.
Status Serving::claim_experts(const Preparation& preparation) {
  const std::uint64_t each =
      expert_bytes(preparation.model, preparation.work.placement.numerics);
  struct Added {
    std::uint32_t device;
    ExpertKey key;
  };
  std::vector<Added> added;
  for (const auto& [index, experts] : preparation.experts) {
    Group& group = groups_.at(index);
    std::vector<ExpertKey> fresh;
    for (const auto& [key, weights] : experts)
      if (!group.claims.contains(key)) fresh.push_back(key);
    auto claim = context_.devices[index]->claim(
        fresh.size() * each, "Holding " + std::to_string(fresh.size()) + " more experts");
    if (!claim.ok()) {
      for (const auto& a : added) groups_.at(a.device).claims.erase(a.key);
      return claim.error();
    }
    for (const auto& key : fresh) {
      group.claims[key] = claim->split(each);
      added.push_back({index, key});
    }
  }
  return {};
}

/// The union of what the versions give; what none gives any more gives its memory back.
void Serving::publish_experts() {
  for (auto& [index, group] : groups_) {
    ExpertSet::Map experts;
    PlacementVersion newest;
    for (const auto& [version, content] : versions_) {
      newest = version;
      if (const auto own = content.experts.find(index); own != content.experts.end())
        experts.insert(own->second.begin(), own->second.end());
    }
    std::erase_if(group.claims, [&](const auto& claim) { return !experts.contains(claim.first); });
    context_.devices[index]->publish(
        std::make_shared<const ExpertSet>(newest, std::move(experts)));
  }
}

void Serving::start_groups(const Preparation& preparation) {
  if (!groups_.empty()) return;
  const Numerics numerics = preparation.work.placement.numerics;
  for (const auto& device : context_.devices) {
    const std::uint32_t index = device->options().index;
    const Address address = here(ActorKind::kExpertGroup, index);
    Group& group = groups_[index];
    group.numerics = numerics;
    group.actor = spawn_expert_group(
        context_.system, std::make_shared<ExpertGroup>(preparation.model, numerics, address,
                                                       context_.post, *device));
    context_.post.attach(address, group.actor);
  }
}

Status Serving::adopt(Preparation p) {
  start_groups(p);
  if (const Status claimed = claim_experts(p); !claimed.ok()) return claimed;
  Version& version = versions_[p.work.version];
  for (const auto& shard : p.work.shards) version.shards.insert(index_of(shard));
  for (const auto& replica : p.work.replicas) version.replicas.insert(replica.id);
  version.experts = std::move(p.experts);
  version.routes = p.routes;
  version.members = p.members;
  publish_experts();
  for (auto& shard : p.shards) {
    const Address address = shard.config.self;
    auto actor = spawn_layer_shard(context_.system, context_.post, *shard.device,
                                   std::move(shard.config), std::move(shard.compute));
    context_.post.attach(address, actor.handle);
    for (const NodeId node : down_) actor.peer_down(node);
    if (!avoided_.empty()) actor.avoid(avoided_);
    shards_[index_of(shard.placement)] = {shard.placement, std::move(actor)};
  }
  for (const auto& config : p.replicas) {
    const Address address = here(ActorKind::kReplica, config.id);
    auto actor = spawn_replica(context_.system, context_.post, address, config);
    context_.post.attach(address, actor.handle);
    replicas_[config.id] = std::move(actor);
  }
  for (const auto& shard : p.work.placement.shards)
    if (version.replicas.contains(shard.replica) ||
        std::any_of(p.work.shards.begin(), p.work.shards.end(),
                    [&](const auto& own) { return own.replica == shard.replica; }))
      spans_[shard.replica][shard.device.node] = p.members.at(shard.device.node);
  return {};
}

void Serving::activate(PlacementVersion version, std::function<void()> settled) {
  active_ = version;
  const Version& content = versions_.at(version);
  end_unless([&](std::uint32_t shard) { return content.shards.contains(shard); },
             [&](std::uint32_t replica) { return content.replicas.contains(replica); });
  // Called when the last shard has let go of it, be it that it has settled or that it has ended.
  const std::shared_ptr<void> open(nullptr, [settled = std::move(settled)](void*) { settled(); });
  for (const auto& [index, shard] : shards_) {
    auto hold = std::make_shared<std::shared_ptr<void>>(open);
    shard.actor.routes(content.routes, content.members, [hold] { hold->reset(); });
  }
}

void Serving::retire(PlacementVersion version) {
  std::erase_if(versions_, [&](const auto& entry) { return entry.first < version; });
  publish_experts();
}

void Serving::drop_pending(const NodeAgentActions::Work* next) {
  std::set<std::uint32_t> shards, replicas;
  if (active_) {
    shards = versions_.at(*active_).shards;
    replicas = versions_.at(*active_).replicas;
  }
  if (next) {
    for (const auto& shard : next->shards) shards.insert(index_of(shard));
    for (const auto& replica : next->replicas) replicas.insert(replica.id);
  }
  std::erase_if(versions_, [&](const auto& entry) { return !active_ || entry.first > *active_; });
  end_unless([&](std::uint32_t shard) { return shards.contains(shard); },
             [&](std::uint32_t replica) { return replicas.contains(replica); });
  publish_experts();
}

// --- Ends ---------------------------------------------------------------------------------------

void Serving::end(const Address& address, const ActorHandle& actor) {
  context_.post.detach(address);
  actor.stop();
  ending_.push_back(actor);
}

void Serving::end_unless(const std::function<bool(std::uint32_t)>& keep_shard,
                         const std::function<bool(std::uint32_t)>& keep_replica) {
  std::erase_if(shards_, [&](const auto& entry) {
    if (keep_shard(entry.first)) return false;
    end(here(ActorKind::kLayerShard, entry.first), entry.second.actor.handle);
    return true;
  });
  std::erase_if(replicas_, [&](const auto& entry) {
    if (keep_replica(entry.first)) return false;
    end(here(ActorKind::kReplica, entry.first), entry.second.handle);
    return true;
  });
  std::erase_if(spans_, [&](const auto& entry) {
    return !replicas_.contains(entry.first) &&
           std::none_of(shards_.begin(), shards_.end(), [&](const auto& shard) {
             return shard.second.placement.replica == entry.first;
           });
  });
}

void Serving::member_lost(NodeId node, Incarnation incarnation) {
  std::set<std::uint32_t> lost;
  for (const auto& [replica, nodes] : spans_)
    if (const auto it = nodes.find(node); it != nodes.end() && it->second <= incarnation)
      lost.insert(replica);
  end_unless(
      [&](std::uint32_t shard) { return !lost.contains(shards_.at(shard).placement.replica); },
      [&](std::uint32_t replica) { return !lost.contains(replica); });
  for (const auto& [index, shard] : shards_) shard.actor.peer_down(node);
  down_.erase(node);  // its next life is another peer
}

void Serving::stop() {
  end_unless([](std::uint32_t) { return false; }, [](std::uint32_t) { return false; });
  for (const auto& [index, group] : groups_) {
    end(here(ActorKind::kExpertGroup, index), group.actor);
    // The device would hold experts in memory that the next version does not give it.
    context_.devices[index]->publish(std::make_shared<const ExpertSet>());
  }
  groups_.clear();
  versions_.clear();
  active_.reset();
}

// --- News ---------------------------------------------------------------------------------------

void Serving::peer_down(NodeId node) {
  down_.insert(node);
  for (const auto& [index, shard] : shards_) shard.actor.peer_down(node);
  for (const auto& [id, replica] : replicas_) replica.peer_down(node);
}

void Serving::peer_up(NodeId node) {
  down_.erase(node);
  for (const auto& [index, shard] : shards_) shard.actor.peer_up(node);
}

void Serving::avoid(std::set<DeviceRef> devices) {
  avoided_ = std::move(devices);
  for (const auto& [index, shard] : shards_) shard.actor.avoid(avoided_);
}

std::vector<ReplicaReport> Serving::reports() const {
  std::vector<ReplicaReport> reports;
  for (const auto& [id, replica] : replicas_) {
    reports.push_back(replica.report());
    reports.back().replica = id;  // it may not have reported yet
  }
  return reports;
}

}  // namespace troupe
