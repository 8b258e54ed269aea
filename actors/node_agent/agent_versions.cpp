#include "actors/node_agent/agent_versions.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "model/placement/route_peers.h"
#include "runtime/counted.h"

namespace troupe {
namespace {

Status check(const Load& load, NodeId self, std::size_t devices) {
  const auto strange = [&](const DeviceRef& device) {
    return device.node == self && device.index >= devices;
  };
  bool fits = std::none_of(load.placement.shards.begin(), load.placement.shards.end(),
                           [&](const auto& shard) { return strange(shard.device); });
  for (const auto& layer : load.placement.experts)
    fits = fits && std::none_of(layer.slots.begin(), layer.slots.end(),
                                [&](const auto& slot) { return strange(slot.device); });
  if (!fits) return invalid_argument("The placement names a device it has not.");
  for (const auto& peer : load.peers)
    if (peer.id == self) return invalid_argument("The placement names it as its own peer.");
  return {};
}

std::vector<LayerExperts> own(const std::vector<LayerExperts>& layers, NodeId self) {
  std::vector<LayerExperts> out;
  for (const auto& layer : layers) {
    LayerExperts here{layer.layer, {}};
    for (const auto& slot : layer.slots)
      if (slot.device.node == self) here.slots.push_back(slot);
    if (!here.slots.empty()) out.push_back(std::move(here));
  }
  return out;
}

PeerLinks::Nodes nodes_of(const Placement& placement) {
  PeerLinks::Nodes nodes;
  for (const auto& shard : placement.shards) nodes.insert(shard.device.node);
  for (const auto& layer : placement.experts)
    for (const auto& slot : layer.slots) nodes.insert(slot.device.node);
  return nodes;
}

VersionWorkPtr work_of(const Load& load, std::vector<Peer> peers, NodeId self,
                       const AgentVersions::Fit& fit) {
  auto work = std::make_shared<VersionWork>();
  work->version = load.placement.version;
  work->placement = load.placement;
  work->engine = load.engine;
  work->model_path = fit.model_path;
  work->checkpoint_hash = fit.checkpoint_hash;
  work->peers = std::move(peers);
  for (const auto& shard : load.placement.shards)
    if (shard.device.node == self) work->shards.push_back(shard);
  for (const auto& replica : load.placement.replicas)
    if (replica.node == self) work->replicas.push_back(replica);
  work->experts = own(load.placement.experts, self);
  work->tier = own(load.placement.tier, self);
  return work;
}

std::string text_of(PlacementVersion version) { return std::to_string(version.value); }

}  // namespace

// --- Loading ------------------------------------------------------------------------------------

void AgentVersions::load(const Load& load, const Fit& fit, AgentVoice& voice, PeerLinks& links,
                         AgentEffects& effects) {
  if (load.placement.version <= newest_) return;  // known already
  newest_ = load.placement.version;
  const Placement& placement = load.placement;
  const auto before = std::exchange(
      pending_, Pending{newest_, nodes_of(placement), route_peers(placement, voice.id)});
  // Replicas of peers that are lost end before anything is begun that may need their memory.
  links.learn(load.peers, voice, effects);
  Status fits = check(load, voice.id, fit.devices);
  auto peers = links.known(pending_->peers);
  if (fits.ok() && !peers) fits = invalid_argument("The placement has a peer it was not told of.");
  if (!fits.ok()) {
    if (before) effects.add(DropVersion{before->version, nullptr});
    return fail(fits.error(), voice, effects);
  }
  const VersionWorkPtr work = work_of(load, std::move(*peers), voice.id, fit);
  voice.say("Loading version " + text_of(newest_) +
                " of the placement: " + counted(work->shards.size(), "shard") + ".",
            effects);
  pending_->work = work;
  links.reach(pending_->peers, voice, effects);
  if (before) effects.add(DropVersion{before->version, work});
  effects.add(LoadVersion{work});
}

void AgentVersions::fail(Error error, AgentVoice& voice, AgentEffects& effects) {
  assert(pending_);
  voice.say("Could not load version " + text_of(pending_->version) + ": " + error.message, effects);
  voice.tell_head(LoadFailed{pending_->version, std::move(error)}, effects);
  pending_.reset();
}

void AgentVersions::progress(const LoadProgress& progress, const AgentVoice& voice,
                             AgentEffects& effects) const {
  if (loading() == progress.version) voice.tell_head(LoadProgress(progress), effects);
}

void AgentVersions::loaded(PlacementVersion version, const AgentVoice& voice,
                           const PeerLinks& links, AgentEffects& effects) {
  if (loading() != version) return;
  pending_->here = true;
  report_if_loaded(voice, links, effects);
}

void AgentVersions::load_failed(PlacementVersion version, Error error, AgentVoice& voice,
                                AgentEffects& effects) {
  if (loading() == version) fail(std::move(error), voice, effects);
}

void AgentVersions::report_if_loaded(const AgentVoice& voice, const PeerLinks& links,
                                     AgentEffects& effects) {
  if (!pending_ || !pending_->here || pending_->reported) return;
  for (const NodeId node : pending_->peers)
    if (!links.reaches(node)) return;
  pending_->reported = true;
  voice.tell_head(Loaded{pending_->version}, effects);
}

// --- Serving ------------------------------------------------------------------------------------

void AgentVersions::activate(const Envelope& envelope, PlacementVersion version, AgentVoice& voice,
                             AgentEffects& effects) {
  if (active_ == version) return;
  if (!pending_ || pending_->version != version || !pending_->reported)
    return voice.refuse(envelope, "that version is not loaded here.", effects);
  active_ = version;
  active_work_ = std::move(pending_->work);
  active_peers_ = std::move(pending_->peers);
  lost_.clear();
  pending_.reset();
  voice.say("Serving version " + text_of(version) + " of the placement.", effects);
  effects.add(ActivateVersion{version});
}

void AgentVersions::settled(PlacementVersion version, const AgentVoice& voice,
                            AgentEffects& effects) const {
  if (active_ == version) voice.tell_head(Activated{version}, effects);
}

void AgentVersions::retire(const Envelope& envelope, PlacementVersion version, AgentVoice& voice,
                           PeerLinks& links, AgentEffects& effects) {
  if (active_ && version < *active_) return;  // a newer one has taken its place
  if (pending_ && version < pending_->version) {
    // The head gave up what was to follow, or it would wait with this.
    effects.add(DropVersion{pending_->version, nullptr});
    pending_.reset();
  }
  if (active_ != version)
    return voice.refuse(envelope, "that version is not active here.", effects);
  links.keep_only(active_peers_, effects);
  effects.add(RetireVersion{version});
}

void AgentVersions::lose(NodeId node, AgentEffects& effects) {
  if (!pending_ || !pending_->nodes.contains(node)) return;
  effects.add(DropVersion{pending_->version, nullptr});
  pending_.reset();
}

void AgentVersions::note_lost(NodeId node) {
  if (active_ && nodes_of(active_work_->placement).contains(node)) lost_.insert(node);
}

void AgentVersions::clear() { *this = {}; }

void AgentVersions::suspend(const WorkerLife& life, AgentEffects& effects) {
  if (pending_) effects.add(DropVersion{pending_->version, nullptr});
  pending_.reset();
  newest_ = *active_;
  suspended_ = life;
}

HeldRole AgentVersions::held_role() const {
  return {suspended_->incarnation,
          active_work_->placement,
          active_work_->engine,
          {lost_.begin(), lost_.end()}};
}

bool AgentVersions::needs(NodeId node) const {
  return active_peers_.contains(node) || (pending_ && pending_->peers.contains(node));
}

std::string AgentVersions::violation() const {
  if (pending_ && active_ && pending_->version <= *active_)
    return "a pending version is not newer than the active one";
  if (pending_ && pending_->version > newest_) return "a pending version was never sent";
  if (active_ && *active_ > newest_) return "an active version was never sent";
  if (suspended_ && (!active_ || pending_ || doubted_)) return "what is suspended cannot be";
  if (active_.has_value() != (active_work_ != nullptr)) return "nobody knows what is active";
  if (pending_ && pending_->reported && !pending_->here)
    return "a version was reported that is not here";
  return {};
}

}  // namespace troupe
