#include "actors/node_agent/peer_links.h"

#include "runtime/limits.h"

namespace troupe {
namespace {

/// A peer that says nothing for this long cannot be reached; it pings with every renewal. A little
/// longer than a lease, so that of a node that hangs the head knows first.
constexpr auto kPeerSilence = limits::kLease + limits::kRenewEvery;
/// Members whose connection broke have this long to make a new one: both are told at once.
constexpr auto kConnectAgain = std::chrono::milliseconds(750);

void lose_life(const Peer& peer, std::string reason, AgentEffects& effects) {
  effects.add(FencePeer{peer});
  effects.add(PeerLost{peer.id, peer.incarnation, std::move(reason)});
}

}  // namespace

PeerLinks::Link* PeerLinks::find(NodeId node, Incarnation incarnation) {
  const auto it = links_.find(node);
  return it != links_.end() && it->second.peer.incarnation == incarnation ? &it->second : nullptr;
}

void PeerLinks::reach(const Peer& peer, const AgentVoice& voice, AgentEffects& effects) {
  links_[peer.id] = {peer};
  if (voice.id < peer.id)
    effects.add(ConnectPeer{peer});
  else
    effects.add(ExpectPeer{peer});
}

void PeerLinks::let_go(const Link& link, AgentEffects& effects) {
  effects.add(ForgetPeer{link.peer});
  if (link.reach == Reach::kUp)
    effects.add(PeerDown{link.peer.id, link.peer.incarnation, "its connection was let go"});
}

void PeerLinks::take(const std::vector<Peer>& peers, const AgentVoice& voice,
                     AgentEffects& effects) {
  for (const auto& peer : peers) {
    if (const auto it = links_.find(peer.id); it != links_.end()) {
      const Peer& known = it->second.peer;
      if (known.incarnation == peer.incarnation && known.token == peer.token) continue;
      if (known.incarnation == peer.incarnation)
        let_go(it->second, effects);
      else
        lose_life(known, "it lives as a newer one", effects);
    }
    reach(peer, voice, effects);
  }
}

void PeerLinks::connect_again(const Peer& peer, const AgentVoice& voice, AgentEffects& effects) {
  const Link* link = find(peer.id, peer.incarnation);
  // A node that is no peer (any more) is not worth a connection. The token says whether this was
  // said before.
  if (!link || link->peer.token == peer.token) return;
  let_go(*link, effects);
  reach(peer, voice, effects);
  links_.at(peer.id).again = true;
}

bool PeerLinks::lose(const MemberLost& lost, const AgentVoice& voice, AgentEffects& effects) {
  if (lost.node == voice.id) return false;  // if it is this life, the session's end says so
  const auto it = links_.find(lost.node);
  if (it != links_.end() && it->second.peer.incarnation > lost.incarnation) return false;
  Peer peer{lost.node, lost.incarnation, {}, {}};
  if (it != links_.end()) {
    peer = it->second.peer;
    links_.erase(it);
  }
  lose_life(peer, lost.reason, effects);
  return true;
}

void PeerLinks::keep_only(const Lives& active, const Lives& pending, AgentEffects& effects) {
  std::erase_if(links_, [&](const auto& entry) {
    if (active.contains(entry.first) || pending.contains(entry.first)) return false;
    let_go(entry.second, effects);
    return true;
  });
}

void PeerLinks::forget_all(AgentEffects& effects) {
  for (const auto& [node, link] : links_) effects.add(ForgetPeer{link.peer});
  links_.clear();
}

void PeerLinks::up(const PeerUp& peer, TimePoint now, AgentEffects& effects) {
  Link* link = find(peer.node, peer.incarnation);
  if (!link) return;
  if (link->reach != Reach::kUp) effects.add(PeerUp{peer});
  link->reach = Reach::kUp;
  link->heard = now;
  link->again = false;
}

/// A load that needs the peer waits on: the head has both connect once more, or says that one is
/// lost.
void PeerLinks::down(const PeerDown& peer, const AgentVoice& voice, AgentEffects& effects) {
  Link* link = find(peer.node, peer.incarnation);
  if (link && link->reach != Reach::kDown) cut(*link, peer.reason, voice, effects);
}

void PeerLinks::cut(Link& link, const std::string& reason, const AgentVoice& voice,
                    AgentEffects& effects) {
  link.reach = Reach::kDown;
  effects.add(PeerDown{link.peer.id, link.peer.incarnation, reason});
  voice.tell_head(PeerUnreachable{link.peer.id, link.peer.incarnation, reason}, effects);
}

void PeerLinks::heard(const Address& from, TimePoint now) {
  if (Link* link = find(from.node, from.incarnation)) link->heard = now;
}

void PeerLinks::ping(TimePoint now, const AgentVoice& voice, AgentEffects& effects) {
  for (auto& [node, link] : links_) {
    const Peer& peer = link.peer;
    if (link.reach == Reach::kTrying && link.again) {
      if (link.heard == TimePoint{}) link.heard = now;
      if (now - link.heard < kConnectAgain) continue;
      effects.add(ForgetPeer{peer});
      cut(link, "no new connection came about", voice, effects);
    }
    if (link.reach != Reach::kUp) continue;
    if (now - link.heard < kPeerSilence) {
      const Ref<NodeAgentInbox> agent(peer.id, peer.incarnation);
      effects.add(SendAs{{voice.self(), agent.address, message_of(PeerPing{})}});
      continue;
    }
    effects.add(ForgetPeer{peer});
    cut(link, "nothing was heard of it for too long", voice, effects);
  }
}

bool PeerLinks::reaches(NodeId node) const {
  const auto it = links_.find(node);
  return it != links_.end() && it->second.reach == Reach::kUp;
}

std::string PeerLinks::violation(const AgentVoice& voice) const {
  if (voice.id == NodeId{} && !links_.empty()) return "a node that is no member has peers";
  for (const auto& [node, link] : links_) {
    if (link.peer.id != node) return "a peer is known by the id of another";
    if (node == voice.id) return "a node is its own peer";
  }
  return {};
}

}  // namespace troupe
