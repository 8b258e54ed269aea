#include "tests/sim/node_actors.h"

#include <algorithm>

#include "tests/sim/world.h"

namespace troupe::sim {

using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t replica_of(std::uint32_t shard) { return shard >> 16; }

std::uint64_t cache_bytes(const NodeActors::Work& work, const ShardPlacement& shard) {
  std::uint64_t positions = 0;
  for (const auto& replica : work.placement.replicas)
    if (replica.id == shard.replica)
      positions = static_cast<std::uint64_t>(replica.kv_blocks * work.engine.block_size);
  const auto layers = static_cast<std::uint64_t>(shard.last_layer - shard.first_layer + 1);
  return positions * layers * costs().kv_bytes_per_token_layer;
}

bool names(const NodeActors::Work& work, std::uint32_t replica) {
  const auto& all = work.placement.replicas;
  return std::any_of(all.begin(), all.end(), [&](const auto& r) { return r.id == replica; });
}

}  // namespace

Address NodeActors::here(ActorKind kind, std::uint32_t index) const {
  return {self_.node, self_.incarnation, {kind, index}};
}

// --- Versions -----------------------------------------------------------------------------------

Status NodeActors::adopt(const Work& work) {
  expected_.reset();
  for (std::uint32_t d = 0; d < worker_.devices().size(); ++d) {
    const std::uint64_t bytes = claimed(d, &work), memory = worker_.devices()[d].memory;
    if (bytes <= memory) continue;
    ++worker_.world().counters.too_large;
    return resource_exhausted("Version " + std::to_string(work.version.value) +
                              " and those before take " + std::to_string(bytes) + " bytes of " +
                              to_string(DeviceRef{self_.node, d}) + ", which has " +
                              std::to_string(memory) + ".");
  }
  Version& version = versions_[work.version];
  version.work = work;
  version.members[self_.node] = self_.incarnation;
  for (const auto& peer : work.peers) version.members[peer.id] = peer.incarnation;
  version.routes = std::make_shared<const ExpertRoutes>(work.placement);
  start_groups();
  for (const auto& shard : work.shards) {
    const std::uint32_t index = shard_index(shard.replica, shard.stage, shard.tp_rank);
    if (!shards_.contains(index)) start_shard(version, shard);
  }
  for (const auto& replica : work.replicas)
    if (!replicas_.contains(replica.id)) start_replica(version, replica);
  publish();
  return {};
}

void NodeActors::activate(PlacementVersion number, Task settled) {
  active_ = number;
  const Version& version = versions_.at(number);
  end_unless([&](std::uint32_t replica) { return names(version.work, replica); });
  Worker* const worker = &worker_;
  auto told = std::make_shared<Task>();
  std::shared_ptr<Task> last(told.get(), [told, worker, settled = std::move(settled)](Task*) {
    worker->later(1us, settled);
  });
  const auto shards = shards_;
  for (const auto& [index, shard] : shards) {
    turn(shard, [&](LayerShard& machine, LayerShardActions& actions) {
      const std::uint64_t routes =
          machine.on_routes(version.routes, version.members, worker_.clock(), actions);
      shard->unsettled[routes] = last;
    });
  }
}

void NodeActors::retire(PlacementVersion version) {
  std::erase_if(versions_, [&](const auto& entry) { return entry.first < version; });
  publish();
}

void NodeActors::drop_pending(const Work* next) {
  expected_.reset();
  std::erase_if(versions_, [&](const auto& entry) { return !active_ || entry.first > *active_; });
  end_unless([&](std::uint32_t replica) {
    if (next && names(*next, replica)) return true;
    return std::any_of(versions_.begin(), versions_.end(), [&](const auto& entry) {
      return entry.first == *active_ && names(entry.second.work, replica);
    });
  });
  publish();
}

void NodeActors::stop() {
  end_unless([](std::uint32_t) { return false; });
  versions_.clear();
  expected_.reset();
  for (std::size_t d = 0; d < worker_.devices().size(); ++d) {
    worker_.devices()[d].hosted.clear();
    worker_.detach(here(ActorKind::kExpertGroup, static_cast<std::uint32_t>(d)));
  }
}

std::vector<NodeActors::Work> NodeActors::works() const {
  std::vector<Work> works;
  for (const auto& [number, version] : versions_) works.push_back(version.work);
  if (expected_) works.push_back(*expected_);
  return works;
}

void NodeActors::publish() {
  for (std::size_t d = 0; d < worker_.devices().size(); ++d) {
    auto& hosted = worker_.devices()[d].hosted;
    hosted.clear();
    for (const auto& [number, version] : versions_)
      for (const auto& layer : version.work.experts)
        for (const auto& slot : layer.slots)
          if (slot.device.index == d) hosted.insert({layer.layer, slot.expert});
  }
}

std::uint64_t NodeActors::claimed(std::uint32_t device, const Work* coming) const {
  const ModelCosts model = costs();
  std::set<ExpertKey> experts = worker_.devices()[device].hosted;
  std::set<Disk::Shard> ranges;
  std::uint64_t bytes = 0;
  for (const auto& [index, shard] : shards_) {
    if (shard->placement.device.index != device) continue;
    bytes += shard->cache_bytes;
    ranges.insert({shard->placement.first_layer, shard->placement.last_layer});
  }
  if (coming) {
    for (const auto& layer : coming->experts)
      for (const auto& slot : layer.slots)
        if (slot.device.index == device) experts.insert({layer.layer, slot.expert});
    for (const auto& shard : coming->shards) {
      if (shard.device.index != device ||
          shards_.contains(shard_index(shard.replica, shard.stage, shard.tp_rank)))
        continue;
      bytes += cache_bytes(*coming, shard);
      ranges.insert({shard.first_layer, shard.last_layer});
    }
  }
  for (const auto& [first, last] : ranges) {
    for (std::int32_t layer = first; layer <= last; ++layer)
      bytes += model.layers[static_cast<std::size_t>(layer)].bytes;
    bytes +=
        (first == 0 ? model.embedding_bytes : 0) + (last + 1 == kLayers ? model.head_bytes : 0);
  }
  return bytes + experts.size() * model.expert_bytes;
}

// --- Actors begin and end -----------------------------------------------------------------------

NodeActors::Members NodeActors::span_of(const Version& version, std::uint32_t replica) const {
  Members span;
  const auto add = [&](NodeId node) {
    const auto member = version.members.find(node);
    if (member == version.members.end())
      worker_.world().broken("A replica spans a node that is no member of its version.");
    else
      span[node] = member->second;
  };
  for (const auto& r : version.work.placement.replicas)
    if (r.id == replica) add(r.node);
  for (const auto& shard : version.work.placement.shards)
    if (shard.replica == replica) add(shard.device.node);
  return span;
}

void NodeActors::start_groups() {
  if (std::exchange(groups_started_, true)) return;
  for (std::uint32_t d = 0; d < worker_.devices().size(); ++d) {
    worker_.attach(here(ActorKind::kExpertGroup, d),
                   [weak = weak_from_this(), d](const Envelope& envelope) {
                     if (const auto self = weak.lock()) self->answer(d, envelope);
                   });
  }
}

void NodeActors::start_shard(const Version& version, const ShardPlacement& placement) {
  const auto& work = version.work;
  const Members span = span_of(version, placement.replica);
  const auto& replicas = work.placement.replicas;
  const auto replica = std::find_if(replicas.begin(), replicas.end(),
                                    [&](const auto& r) { return r.id == placement.replica; });
  if (replica == replicas.end() || !span.contains(replica->node))
    return worker_.world().broken("A shard without a replica.");
  const auto address_of = [&](const ShardPlacement& shard) -> Address {
    return {shard.device.node,
            span.at(shard.device.node),
            {ActorKind::kLayerShard, shard_index(shard.replica, shard.stage, shard.tp_rank)}};
  };
  LayerShardConfig config;
  config.self = address_of(placement);
  config.replica = {replica->node, span.at(replica->node), {ActorKind::kReplica, replica->id}};
  config.replica_id = placement.replica;
  config.device = placement.device;
  config.routes = version.routes;
  config.members = version.members;
  for (const auto& other : work.placement.shards) {
    if (other.replica != placement.replica) continue;
    if (other.stage + 1 == placement.stage) config.previous = address_of(other);
    if (other.stage == placement.stage + 1) config.next = address_of(other);
  }
  const FakeCompute::Options options{placement.first_layer, placement.last_layer,
                                     replica->kv_blocks, work.engine.block_size};
  const auto shard = std::make_shared<ShardActor>(config, options);
  shard->placement = placement;
  shard->span = span;
  shard->cache_bytes = cache_bytes(work, placement);
  shards_[config.self.actor.index] = shard;
  worker_.attach(config.self, [weak = weak_from_this(), shard](const Envelope& envelope) {
    const auto self = weak.lock();
    if (!self) return;
    self->turn(shard, [&](LayerShard& machine, LayerShardActions& actions) {
      machine.on(envelope, self->worker_.clock(), actions);
    });
  });
  for (const NodeId node : down_)
    turn(shard, [&](LayerShard& machine, LayerShardActions& actions) {
      machine.on_peer_down(node, worker_.clock(), actions);
    });
  turn(shard, [&](LayerShard& machine, LayerShardActions& actions) {
    machine.on_avoid(avoided_, worker_.clock(), actions);
  });
}

void NodeActors::start_replica(const Version& version, const ReplicaPlacement& placement) {
  const auto& work = version.work;
  ReplicaConfig config;
  config.id = placement.id;
  config.version = work.version;
  config.router = self_.router;
  config.stages = 0;
  const Members span = span_of(version, placement.id);
  for (const auto& shard : work.placement.shards) {
    if (shard.replica != placement.id) continue;
    config.shards.push_back(
        {shard.device.node,
         span.at(shard.device.node),
         {ActorKind::kLayerShard, shard_index(shard.replica, shard.stage, shard.tp_rank)}});
    config.stages = std::max(config.stages, static_cast<std::int32_t>(shard.stage) + 1);
  }
  config.blocks = placement.kv_blocks;
  config.block_size = work.engine.block_size;
  config.max_num_seqs = work.engine.max_num_seqs;
  config.max_num_batched_tokens = work.engine.max_num_batched_tokens;
  config.max_model_len = work.engine.max_model_len;
  const auto replica = std::make_shared<ReplicaActor>(config);
  replica->self = here(ActorKind::kReplica, placement.id);
  replica->span = span;
  replica->steps_most = config.stages;
  replicas_[placement.id] = replica;
  worker_.attach(replica->self, [weak = weak_from_this(), replica](const Envelope& envelope) {
    const auto self = weak.lock();
    if (!self) return;
    if (const auto* result = std::get_if<StepResult>(envelope.message.get()))
      replica->blocks.erase(result->step);
    if (const auto* failed = std::get_if<StepFailed>(envelope.message.get())) {
      ++self->worker_.world().counters.steps_failed;
      replica->blocks.erase(failed->step);
    }
    self->turn(replica, [&](Replica& machine, Actions& actions) {
      machine.on(envelope, self->worker_.clock(), actions);
    });
  });
}

void NodeActors::end_unless(const std::function<bool(std::uint32_t)>& keep_replica) {
  std::erase_if(replicas_, [&](const auto& entry) {
    if (keep_replica(entry.first)) return false;
    end(entry.second);
    return true;
  });
  std::erase_if(shards_, [&](const auto& entry) {
    if (keep_replica(replica_of(entry.first))) return false;
    end(entry.second);
    return true;
  });
}

void NodeActors::end(const ReplicaPtr& replica) {
  replica->ended = true;
  worker_.detach(replica->self);
}

void NodeActors::end(const ShardPtr& shard) {
  shard->ended = true;
  shard->unsettled.clear();
  worker_.detach(shard->self);
}

// --- Members come and go ------------------------------------------------------------------------

void NodeActors::member_lost(NodeId node, Incarnation incarnation) {
  const auto lost = [&](const auto& span) {
    const auto it = span.find(node);
    return it != span.end() && it->second == incarnation;
  };
  end_unless([&](std::uint32_t id) {
    const auto replica = replicas_.find(id);
    if (replica != replicas_.end() && lost(replica->second->span)) return false;
    return std::none_of(shards_.begin(), shards_.end(), [&](const auto& entry) {
      return replica_of(entry.first) == id && lost(entry.second->span);
    });
  });
  peer_down(node);
}

void NodeActors::peer_down(NodeId node) {
  down_.insert(node);
  const auto shards = shards_;
  for (const auto& [index, shard] : shards)
    turn(shard, [&](LayerShard& machine, LayerShardActions& actions) {
      machine.on_peer_down(node, worker_.clock(), actions);
    });
}

void NodeActors::peer_up(NodeId node) {
  down_.erase(node);
  const auto shards = shards_;
  for (const auto& [index, shard] : shards)
    turn(shard, [&](LayerShard& machine, LayerShardActions& actions) {
      machine.on_peer_up(node, worker_.clock(), actions);
    });
}

void NodeActors::avoid(std::set<DeviceRef> devices) {
  avoided_ = std::move(devices);
  const auto shards = shards_;
  for (const auto& [index, shard] : shards)
    turn(shard, [&](LayerShard& machine, LayerShardActions& actions) {
      machine.on_avoid(avoided_, worker_.clock(), actions);
    });
}

std::vector<ReplicaReport> NodeActors::reports() const {
  std::vector<ReplicaReport> reports;
  for (const auto& [id, replica] : replicas_) reports.push_back(replica->machine.report());
  return reports;
}

std::string NodeActors::describe() const {
  std::string text;
  for (const auto& [id, replica] : replicas_) {
    const ReplicaReport report = replica->machine.report();
    text += "; replica " + std::to_string(id) + " runs " + std::to_string(report.running) +
            ", waits " + std::to_string(report.waiting);
  }
  for (const auto& [index, shard] : shards_)
    text += "; shard of replica " + std::to_string(replica_of(index)) + " has " +
            std::to_string(shard->machine.steps()) + " steps";
  return text;
}

}  // namespace troupe::sim
