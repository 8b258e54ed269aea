#include <algorithm>
#include <cassert>

#include "actors/node_agent/node_agent.h"

namespace troupe {
namespace {

/// A peer that says nothing for this long cannot be reached; it pings with every renewal. A little
/// longer than a lease, so that of a node that hangs the head knows first.
constexpr auto kPeerSilence = limits::kLease + limits::kRenewEvery;
/// Members whose connection broke have this long to make a new one: both are told at once.
constexpr auto kConnectAnew = std::chrono::milliseconds(750);

}  // namespace

bool NodeAgent::on_version_message(const Envelope& envelope, NodeAgentActions& actions) {
  const Message& message = *envelope.message;
  if (const auto* load = std::get_if<Load>(&message)) {
    on_load(*load, actions);
  } else if (const auto* activate = std::get_if<Activate>(&message)) {
    on_activate(envelope, activate->version, actions);
  } else if (const auto* retire = std::get_if<Retire>(&message)) {
    on_retire(envelope, retire->version, actions);
  } else if (const auto* lost = std::get_if<MemberLost>(&message)) {
    on_member_lost(*lost, actions);
  } else if (const auto* connect = std::get_if<Connect>(&message)) {
    on_connect(connect->peer, actions);
  } else if (const auto* avoid = std::get_if<Avoid>(&message)) {
    actions.avoid = std::set<DeviceRef>(avoid->devices.begin(), avoid->devices.end());
  } else {
    return false;
  }
  return true;
}

// --- Loading ------------------------------------------------------------------------------------

Status NodeAgent::check_load(const Load& load) const {
  const auto mine = [&](const DeviceRef& device) {
    return device.node != id_ || device.index < options_.devices.size();
  };
  for (const auto& shard : load.placement.shards) {
    if (!mine(shard.device)) return invalid_argument("The placement names a device it has not.");
  }
  for (const auto& layer : load.placement.experts) {
    for (const auto& slot : layer.slots) {
      if (!mine(slot.device)) return invalid_argument("The placement names a device it has not.");
    }
  }
  for (const auto& peer : load.peers) {
    if (peer.id == id_) return invalid_argument("The placement names it as its own peer.");
  }
  return {};
}

NodeAgentActions::Work NodeAgent::work_of(const Load& load) const {
  NodeAgentActions::Work work;
  work.version = load.placement.version;
  work.placement = load.placement;
  work.engine = load.engine;
  work.model_path = model_path_;
  work.checkpoint_hash = checkpoint_hash_;
  work.peers = load.peers;
  for (const auto& shard : load.placement.shards) {
    if (shard.device.node == id_) work.shards.push_back(shard);
  }
  for (const auto& replica : load.placement.replicas) {
    if (replica.node == id_) work.replicas.push_back(replica);
  }
  const auto own = [this](const std::vector<LayerExperts>& layers) {
    std::vector<LayerExperts> out;
    for (const auto& layer : layers) {
      LayerExperts here{layer.layer, {}};
      for (const auto& slot : layer.slots) {
        if (slot.device.node == id_) here.slots.push_back(slot);
      }
      if (!here.slots.empty()) out.push_back(std::move(here));
    }
    return out;
  };
  work.experts = own(load.placement.experts);
  work.tier = own(load.placement.tier);
  return work;
}

void NodeAgent::on_load(const Load& load, NodeAgentActions& actions) {
  if (load.placement.version <= newest_) return;  // told before
  newest_ = load.placement.version;
  if (pending_) actions.drop = pending_->version;
  pending_ = Pending{newest_, {}, false, false};
  if (Status s = check_load(load); !s) {
    fail_load(s.error(), actions);
    return;
  }
  for (const auto& peer : load.peers) pending_->peers[peer.id] = peer.incarnation;
  actions.load = work_of(load);
  say("Loading version " + std::to_string(newest_.value) +
          " of the placement: " + std::to_string(actions.load->shards.size()) + " shards.",
      actions);
  take_peers(load.peers, actions);
}

void NodeAgent::fail_load(Error error, NodeAgentActions& actions) {
  assert(pending_);
  say("Could not load version " + std::to_string(pending_->version.value) + ": " + error.message,
      actions);
  actions.send(head_address(), LoadFailed{pending_->version, std::move(error)});
  pending_.reset();
}

void NodeAgent::load_progress(const LoadProgress& progress, TimePoint now,
                              NodeAgentActions& actions) {
  if (keep_lease(now, actions) && loading() == progress.version) {
    actions.send(head_address(), LoadProgress(progress));
  }
  wake(actions);
}

void NodeAgent::loaded(PlacementVersion version, TimePoint now, NodeAgentActions& actions) {
  if (keep_lease(now, actions) && loading() == version) {
    pending_->here = true;
    report_if_loaded(actions);
  }
  wake(actions);
}

void NodeAgent::load_failed(PlacementVersion version, Error error, TimePoint now,
                            NodeAgentActions& actions) {
  if (keep_lease(now, actions) && loading() == version) fail_load(std::move(error), actions);
  wake(actions);
}

/// Only the peers of that version count: others may be lost, or never come.
void NodeAgent::report_if_loaded(NodeAgentActions& actions) {
  if (!pending_ || !pending_->here || pending_->reported) return;
  for (const auto& [node, life] : pending_->peers) {
    const auto it = peers_.find(node);
    if (it == peers_.end() || it->second.reach != Reach::kUp) return;
  }
  pending_->reported = true;
  actions.send(head_address(), Loaded{pending_->version});
}

// --- Serving ------------------------------------------------------------------------------------

void NodeAgent::on_activate(const Envelope& envelope, PlacementVersion version,
                            NodeAgentActions& actions) {
  if (active_ == version) return;
  if (!pending_ || pending_->version != version || !pending_->reported) {
    refuse(envelope, "that version is not loaded here.", actions);
    return;
  }
  active_ = version;
  active_peers_ = std::move(pending_->peers);
  pending_.reset();
  actions.activate = version;
  say("Serving version " + std::to_string(version.value) + " of the placement.", actions);
}

void NodeAgent::settled(PlacementVersion version, TimePoint now, NodeAgentActions& actions) {
  if (keep_lease(now, actions) && active_ == version) {
    actions.send(head_address(), Activated{version});
  }
  wake(actions);
}

void NodeAgent::on_retire(const Envelope& envelope, PlacementVersion version,
                          NodeAgentActions& actions) {
  if (active_ && version < *active_) return;  // a newer one has taken its place
  if (active_ != version) {
    refuse(envelope, "that version is not active here.", actions);
    return;
  }
  actions.retire = version;
  std::erase_if(peers_, [&](const auto& entry) {
    const NodeId node = entry.first;
    if (active_peers_.contains(node) || (pending_ && pending_->peers.contains(node))) return false;
    let_go(entry.second, actions);
    return true;
  });
}

// --- Peers --------------------------------------------------------------------------------------

void NodeAgent::reach(const Peer& peer, NodeAgentActions& actions) {
  peers_[peer.id] = {peer, Reach::kTrying};
  (id_ < peer.id ? actions.connect_peers : actions.expect_peers).push_back(peer);
}

void NodeAgent::let_go(const PeerState& state, NodeAgentActions& actions) {
  actions.forget_peers.push_back(state.peer);
  if (state.reach == Reach::kUp) actions.peers_down.push_back(state.peer.id);
}

/// A connection that stands for the same lives and token is kept; the node with the lower id goes
/// to the other. Peers that are not named stay: the active version may need them.
void NodeAgent::take_peers(const std::vector<Peer>& peers, NodeAgentActions& actions) {
  for (const auto& peer : peers) {
    if (const auto it = peers_.find(peer.id); it != peers_.end()) {
      const Peer known = it->second.peer;
      if (known.incarnation == peer.incarnation && known.token == peer.token) continue;
      if (known.incarnation == peer.incarnation)
        let_go(it->second, actions);
      else
        lose(known, actions);
    }
    reach(peer, actions);
  }
}

void NodeAgent::on_connect(const Peer& peer, NodeAgentActions& actions) {
  const auto it = peers_.find(peer.id);
  // Whoever is no peer (any more) is not worth a connection; the token says whether it was told
  // before.
  if (it == peers_.end() || it->second.peer.incarnation != peer.incarnation ||
      it->second.peer.token == peer.token) {
    return;
  }
  let_go(it->second, actions);
  reach(peer, actions);
  peers_.at(peer.id).anew = true;
}

void NodeAgent::lose(const Peer& peer, NodeAgentActions& actions) {
  actions.fence_peers.push_back(peer);
  actions.lost.push_back({peer.id, peer.incarnation});
}

void NodeAgent::on_member_lost(const MemberLost& lost, NodeAgentActions& actions) {
  if (lost.node == id_) return;  // if it is this life, the session's end says so
  const auto it = peers_.find(lost.node);
  if (it != peers_.end() && it->second.peer.incarnation > lost.incarnation) return;
  Peer peer{lost.node, lost.incarnation, {}, {}};
  if (it != peers_.end()) {
    peer = it->second.peer;
    peers_.erase(it);
  }
  lose(peer, actions);
  say(lost.reason, actions);
  if (pending_ && pending_->peers.contains(lost.node)) {
    actions.drop = pending_->version;
    pending_.reset();
  }
}

void NodeAgent::peer_up(NodeId peer, Incarnation incarnation, TimePoint now,
                        NodeAgentActions& actions) {
  const auto it = peers_.find(peer);
  if (keep_lease(now, actions) && it != peers_.end() &&
      it->second.peer.incarnation == incarnation) {
    if (it->second.reach != Reach::kUp) actions.peers_up.push_back(peer);
    it->second.reach = Reach::kUp;
    it->second.heard = now;
    it->second.anew = false;
    report_if_loaded(actions);
  }
  wake(actions);
}

/// A load that needs the peer waits on: the head has both connect anew, or says that one is lost.
void NodeAgent::peer_down(NodeId peer, Incarnation incarnation, std::string_view reason,
                          TimePoint now, NodeAgentActions& actions) {
  const auto it = peers_.find(peer);
  if (keep_lease(now, actions) && it != peers_.end() &&
      it->second.peer.incarnation == incarnation && it->second.reach != Reach::kDown) {
    break_link(it->second, reason, actions);
  }
  wake(actions);
}

void NodeAgent::break_link(PeerState& state, std::string_view reason, NodeAgentActions& actions) {
  state.reach = Reach::kDown;
  actions.peers_down.push_back(state.peer.id);
  actions.send(head_address(),
               PeerUnreachable{state.peer.id, state.peer.incarnation, std::string(reason)});
}

/// With every renewal; whoever was not heard for too long is cut off, though nothing was reset.
void NodeAgent::ping_peers(TimePoint now, NodeAgentActions& actions) {
  for (auto& [node, state] : peers_) {
    if (state.reach == Reach::kTrying && state.anew) {
      if (state.heard == TimePoint{}) state.heard = now;
      if (now - state.heard < kConnectAnew) continue;
      actions.forget_peers.push_back(state.peer);
      break_link(state, "no new connection came about", actions);
    }
    if (state.reach != Reach::kUp) continue;
    if (now - state.heard < kPeerSilence) {
      actions.pings.push_back(state.peer);
      continue;
    }
    actions.forget_peers.push_back(state.peer);
    break_link(state, "nothing was heard of it for too long", actions);
  }
}

}  // namespace troupe
