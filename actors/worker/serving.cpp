#include "actors/worker/serving.h"

#include <algorithm>
#include <utility>

namespace troupe {

// --- Versions -----------------------------------------------------------------------------------

/// The union of what the versions give; what none gives any more gives its memory back. A version
/// that is not in force yet may have been read wrongly: it is proven once all have loaded it, and
/// then others may ask for its experts before this node hears that it is in force.
void Serving::publish_experts(WorkerEffects& effects) {
  for (auto& [index, group] : groups_) {
    ExpertSet::Map experts, serving;
    PlacementVersion newest;
    for (const auto& [version, content] : versions_) {
      newest = version;
      const auto own = content.experts.find(index);
      if (own == content.experts.end()) continue;
      experts.insert(own->second.begin(), own->second.end());
      if (active_ && version <= *active_) serving.insert(own->second.begin(), own->second.end());
    }
    std::erase_if(group.claims, [&](const auto& claim) { return !experts.contains(claim.first); });
    const bool same = serving.size() == experts.size();
    auto all = std::make_shared<const ExpertSet>(newest, std::move(experts));
    auto used = same ? all
                     : std::make_shared<const ExpertSet>(active_.value_or(PlacementVersion{}),
                                                         std::move(serving));
    effects.add(PublishExperts{index, std::move(all), std::move(used)});
  }
}

void Serving::start_groups(Preparation& preparation, WorkerEffects& effects) {
  if (!groups_.empty()) return;
  for (auto& group : preparation.groups) {
    groups_[group.device].numerics = group.spec.numerics;
    effects.add(StartGroup{here<ExpertGroupInbox>(group.device), group.device, group.made.row_bytes,
                           std::move(group.made.pass)});
  }
}

/// A new shard hears first whom it cannot ask.
void Serving::start_shards(Preparation& preparation, WorkerEffects& effects) {
  for (auto& shard : preparation.shards) {
    const Ref<LayerShardInbox> self = shard.config.self;
    effects.add(StartShard{self, std::move(shard.config), shard.placement.device.index,
                           std::move(shard.compute)});
    for (const auto& [node, down] : down_) effects.send(self, PeerDown{down});
    if (!avoided_.empty()) effects.send(self, DevicesAvoided{avoided_});
    shards_[shard_index(shard.placement)] = shard.placement;
  }
}

/// Which nodes a replica with a part here spans.
void Serving::note_spans(const Preparation& preparation) {
  std::set<std::uint32_t> own;
  for (const auto& replica : preparation.work->replicas) own.insert(replica.id);
  for (const auto& shard : preparation.work->shards) own.insert(shard.replica);
  for (const auto& shard : preparation.work->placement.shards)
    if (own.contains(shard.replica)) spans_[shard.replica].insert(shard.device.node);
}

Status Serving::adopt(Preparation& p, WorkerEffects& effects) {
  start_groups(p, effects);
  // What another version had may have been given back meanwhile.
  if (const Status claimed = reserve_experts(*p.work, *p.model, p.memory); !claimed.ok())
    return claimed;
  for (auto& [index, claims] : p.memory.experts) groups_.at(index).claims.merge(claims);
  Version& version = versions_[p.work->version];
  for (const auto& shard : p.work->shards) version.shards.insert(shard_index(shard));
  for (const auto& replica : p.work->replicas) version.replicas.insert(replica.id);
  version.experts = std::move(p.experts);
  version.routes = p.routes;
  version.members = p.members;
  publish_experts(effects);
  start_shards(p, effects);
  for (auto& config : p.replicas) {
    auto slot = std::make_shared<ReportSlot>();
    replicas_[config.id] = slot;
    const Ref<ReplicaInbox> self = here<ReplicaInbox>(config.id);
    effects.add(StartReplica{self, std::move(config), std::move(slot)});
  }
  note_spans(p);
  return {};
}

void Serving::activate(PlacementVersion version, WorkerEffects& effects) {
  active_ = version;
  publish_experts(effects);
  const Version& content = versions_.at(version);
  end_unless([&](std::uint32_t shard) { return content.shards.contains(shard); },
             [&](std::uint32_t replica) { return content.replicas.contains(replica); }, effects);
  unsettled_.emplace();
  for (const auto& [index, shard] : shards_) {
    unsettled_->insert(index);
    effects.send(here<LayerShardInbox>(index), RoutesChanged{content.routes, content.members});
  }
}

void Serving::on(const RoutesSettled& settled) {
  if (unsettled_ && settled.version == active_) unsettled_->erase(settled.shard);
}

std::optional<PlacementVersion> Serving::take_settled() {
  if (!unsettled_ || !unsettled_->empty()) return std::nullopt;
  unsettled_.reset();
  return active_;
}

void Serving::retire(PlacementVersion version, WorkerEffects& effects) {
  std::erase_if(versions_, [&](const auto& entry) { return entry.first < version; });
  publish_experts(effects);
}

void Serving::drop_pending(const VersionWork* next, WorkerEffects& effects) {
  std::set<std::uint32_t> shards, replicas;
  if (active_) {
    shards = versions_.at(*active_).shards;
    replicas = versions_.at(*active_).replicas;
  }
  if (next) {
    for (const auto& shard : next->shards) shards.insert(shard_index(shard));
    for (const auto& replica : next->replicas) replicas.insert(replica.id);
  }
  std::erase_if(versions_, [&](const auto& entry) { return !active_ || entry.first > *active_; });
  end_unless([&](std::uint32_t shard) { return shards.contains(shard); },
             [&](std::uint32_t replica) { return replicas.contains(replica); }, effects);
  publish_experts(effects);
}

// --- Ends ---------------------------------------------------------------------------------------

void Serving::end(const Address& actor, WorkerEffects& effects) {
  effects.add(EndActor{actor});
  ending_.push_back(actor);
}

void Serving::end_unless(const Keep& keep_shard, const Keep& keep_replica, WorkerEffects& effects) {
  std::erase_if(shards_, [&](const auto& entry) {
    if (keep_shard(entry.first)) return false;
    end(here<LayerShardInbox>(entry.first).address, effects);
    if (unsettled_) unsettled_->erase(entry.first);  // it asks no more
    return true;
  });
  std::erase_if(replicas_, [&](const auto& entry) {
    if (keep_replica(entry.first)) return false;
    end(here<ReplicaInbox>(entry.first).address, effects);
    return true;
  });
  std::erase_if(spans_, [&](const auto& entry) {
    return !replicas_.contains(entry.first) &&
           std::none_of(shards_.begin(), shards_.end(),
                        [&](const auto& shard) { return shard.second.replica == entry.first; });
  });
}

void Serving::member_lost(const PeerLost& peer, WorkerEffects& effects) {
  std::set<std::uint32_t> lost;
  // The head says that a life is over before it gives its next one a part.
  for (const auto& [replica, nodes] : spans_)
    if (nodes.contains(peer.node)) lost.insert(replica);
  end_unless([&](std::uint32_t shard) { return !lost.contains(shards_.at(shard).replica); },
             [&](std::uint32_t replica) { return !lost.contains(replica); }, effects);
  for (const auto& [index, shard] : shards_)
    effects.send(here<LayerShardInbox>(index), PeerDown{peer.node, peer.incarnation, peer.reason});
  down_.erase(peer.node);  // its next life is another peer
}

void Serving::stop(WorkerEffects& effects) {
  end_unless([](std::uint32_t) { return false; }, [](std::uint32_t) { return false; }, effects);
  for (const auto& [index, group] : groups_) {
    end(here<ExpertGroupInbox>(index).address, effects);
    // The device would hold experts in memory that the next version does not give it.
    const auto none = std::make_shared<const ExpertSet>();
    effects.add(PublishExperts{index, none, none});
  }
  groups_.clear();
  versions_.clear();
  active_.reset();
  unsettled_.reset();
}

void Serving::suspend(WorkerEffects& effects) {
  unsettled_.reset();
  for (const auto& [id, reports] : replicas_)
    effects.send(here<ReplicaInbox>(id), HeadChanged{std::nullopt});
  for (const auto& [node, life] : versions_.at(*active_).members)
    if (node != self_.node) peer_down({node, life, "The head is gone."}, effects);
}

void Serving::resume(const Ref<RouterInbox>& router, WorkerEffects& effects) {
  self_.router = router;
  for (const auto& [id, reports] : replicas_)
    effects.send(here<ReplicaInbox>(id), HeadChanged{router.address.incarnation});
  for (const auto& [index, shard] : shards_)
    effects.send(here<LayerShardInbox>(index), HeadChanged{router.address.incarnation});
}

// --- News ---------------------------------------------------------------------------------------

void Serving::peer_down(const PeerDown& peer, WorkerEffects& effects) {
  down_[peer.node] = peer;
  for (const auto& [index, shard] : shards_)
    effects.send(here<LayerShardInbox>(index), PeerDown{peer});
  for (const auto& [id, reports] : replicas_) effects.send(here<ReplicaInbox>(id), PeerDown{peer});
}

void Serving::peer_up(const PeerUp& peer, WorkerEffects& effects) {
  down_.erase(peer.node);
  for (const auto& [index, shard] : shards_)
    effects.send(here<LayerShardInbox>(index), PeerUp{peer});
}

void Serving::avoid(std::set<DeviceRef> devices, WorkerEffects& effects) {
  avoided_ = std::move(devices);
  for (const auto& [index, shard] : shards_)
    effects.send(here<LayerShardInbox>(index), DevicesAvoided{avoided_});
}

std::vector<ReplicaReport> Serving::reports() const {
  std::vector<ReplicaReport> reports;
  for (const auto& [id, slot] : replicas_) {
    reports.push_back(slot->newest());
    reports.back().replica = id;  // it may not have reported yet
  }
  return reports;
}

std::string Serving::violation() const {
  if (active_ && !versions_.contains(*active_)) return "the active version is not known";
  if (unsettled_ && !active_) return "routes are to settle, but no version is active";
  if (unsettled_)
    for (const std::uint32_t shard : *unsettled_)
      if (!shards_.contains(shard)) return "a shard that has ended is waited for";
  for (const auto& [index, shard] : shards_)
    if (!spans_.contains(shard.replica)) return "nobody knows which nodes a shard's replica spans";
  for (const auto& [index, group] : groups_)
    for (const auto& [key, claim] : group.claims)
      if (std::none_of(versions_.begin(), versions_.end(), [&, i = index, k = key](auto& entry) {
            const auto own = entry.second.experts.find(i);
            return own != entry.second.experts.end() && own->second.contains(k);
          }))
        return "memory is taken for an expert that no version gives";
  for (const auto& [version, content] : versions_)
    for (const auto& [index, experts] : content.experts)
      for (const auto& [key, weights] : experts)
        if (!groups_.at(index).claims.contains(key))
          return "an expert is hosted without memory of its own";
  return {};
}

}  // namespace troupe
