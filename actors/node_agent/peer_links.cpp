#include "actors/node_agent/peer_links.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

/// A peer that owes a sign of life for this long cannot be reached. A little longer than a lease,
/// so that of a node that hangs the head knows first.
constexpr auto kPeerSilence = limits::kLease + limits::kRenewEvery;
/// Who was heard of within this time need not be asked.
constexpr auto kHeardLately = limits::kRenewEvery / 2;
/// So many are asked at a time: of a thousand peers that do nothing each every four seconds.
constexpr std::size_t kAskedMax = 64;
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

bool PeerLinks::calls(const Link& link, const AgentVoice& voice) {
  return (voice.id < link.peer.id) != link.peer.reversed;
}

void PeerLinks::go(Link& link, const AgentVoice& voice, AgentEffects& effects) {
  link = {link.peer, Reach::kTrying, false, link.old_ends};
  if (calls(link, voice))
    effects.add(ConnectPeer{link.peer});
  else
    effects.add(ExpectPeer{link.peer});
}

void PeerLinks::let_go(Link& link, AgentEffects& effects) {
  if (link.reach == Reach::kTold) return;
  effects.add(ForgetPeer{link.peer});
  // While it is tried, it may have come up and taken messages.
  if (link.reach != Reach::kDown)
    effects.add(PeerDown{link.peer.id, link.peer.incarnation, "its connection was let go"});
  link = {link.peer, Reach::kTold, false, link.reach != Reach::kDown};
}

void PeerLinks::learn(const std::vector<Peer>& peers, const AgentVoice& voice,
                      AgentEffects& effects) {
  for (const Peer& peer : peers) {
    if (peer.id == voice.id) continue;
    if (const auto it = links_.find(peer.id); it != links_.end()) {
      Link& link = it->second;
      if (link.peer.incarnation != peer.incarnation)
        lose_life(link.peer, "it lives as a newer one", effects);
      else if (link.peer.token != peer.token)
        let_go(link, effects);
      if (link.peer.incarnation == peer.incarnation) {
        link.peer = peer;
        continue;
      }
    }
    links_[peer.id] = {peer};
  }
}

std::optional<std::vector<Peer>> PeerLinks::known(const Nodes& nodes) const {
  std::vector<Peer> peers;
  for (const NodeId node : nodes) {
    const auto it = links_.find(node);
    if (it == links_.end()) return std::nullopt;
    peers.push_back(it->second.peer);
  }
  return peers;
}

void PeerLinks::reach(const Nodes& nodes, const AgentVoice& voice, AgentEffects& effects) {
  for (const NodeId node : nodes)
    if (Link& link = links_.at(node); link.reach == Reach::kTold) go(link, voice, effects);
}

void PeerLinks::connect_again(const Peer& peer, const AgentVoice& voice, AgentEffects& effects) {
  Link* link = find(peer.id, peer.incarnation);
  // The token says whether this was said before.
  if (!link || link->peer.token == peer.token) return;
  const bool wanted = link->reach != Reach::kTold;
  const bool turned = link->peer.reversed != peer.reversed;
  let_go(*link, effects);
  link->peer = peer;
  if (!wanted) return;
  go(*link, voice, effects);
  link->again = !turned;  // the other way round is tried as if for the first time
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

void PeerLinks::keep_only(const Nodes& peers, AgentEffects& effects) {
  for (auto& [node, link] : links_)
    if (!peers.contains(node)) let_go(link, effects);
}

void PeerLinks::forget_all(AgentEffects& effects) {
  measuring_.stop(effects);
  for (const auto& [node, link] : links_)
    if (link.reach != Reach::kTold) effects.add(ForgetPeer{link.peer});
  links_.clear();
}

void PeerLinks::up(const PeerUp& peer, TimePoint now, AgentEffects& effects) {
  Link* link = find(peer.node, peer.incarnation);
  if (!link || link->reach == Reach::kTold) return;
  if (link->reach != Reach::kUp) effects.add(PeerUp{peer});
  *link = {link->peer, Reach::kUp, false, false, now};
}

/// A load that needs the peer waits on: the head has both connect once more, or says that one is
/// lost.
void PeerLinks::down(const PeerDown& peer, bool needed, const AgentVoice& voice,
                     AgentEffects& effects) {
  Link* link = find(peer.node, peer.incarnation);
  if (!link || link->reach == Reach::kDown) return;
  // If it is the new one that does not come, cut_silent() finds that.
  if (std::exchange(link->old_ends, false) || link->reach == Reach::kTold) return;
  const bool tried = link->reach == Reach::kTrying && peer.fault == LinkFault::kBroke;
  if (needed)
    return cut(*link, {peer.reason, tried ? LinkFault::kNobody : peer.fault}, voice, effects);
  let_go(*link, effects);
  link->old_ends = false;
}

void PeerLinks::distrust(const PeerCorrupt& peer, const AgentVoice& voice, AgentEffects& effects) {
  Link* link = find(peer.node, peer.incarnation);
  if (!link || link->reach != Reach::kUp) return;
  effects.add(ForgetPeer{link->peer});
  cut(*link, {peer.reason}, voice, effects);
}

void PeerLinks::cut(Link& link, const LinkEnd& end, const AgentVoice& voice,
                    AgentEffects& effects) {
  const Peer& peer = link.peer;
  link.reach = Reach::kDown;
  link.asked.reset();
  effects.add(PeerDown{peer.id, peer.incarnation, end.reason, end.fault});
  voice.tell_head(PeerUnreachable{peer.id, peer.incarnation, end.reason, end.fault}, effects);
  if (end.fault != LinkFault::kBroke)
    effects.add(LogLine{"There is no connection to " + to_string(peer.id) + ": " + end.reason,
                        LogLine::Level::kWarning});
}

// --- Signs of life ------------------------------------------------------------------------------

void PeerLinks::watch(TimePoint now, const std::vector<PeerTraffic>& traffic,
                      const AgentVoice& voice, AgentEffects& effects) {
  for (const PeerTraffic& seen : traffic) {
    Link* link = find(seen.node, seen.incarnation);
    if (!link || link->reach != Reach::kUp) continue;
    link->heard = std::max(link->heard, seen.heard);
    link->sent = seen.sent;
    if (link->asked && link->heard >= *link->asked) link->asked.reset();
  }
  std::vector<Link*> quiet;
  for (auto& [node, link] : links_) {
    cut_silent(link, now, voice, effects);
    if (link.reach == Reach::kUp && now - link.heard >= kHeardLately) quiet.push_back(&link);
  }
  const auto first = [](const Link* link) {
    return std::tuple(!link->asked && link->sent <= link->heard, link->heard, link->peer.id);
  };
  const auto end = quiet.begin() + static_cast<std::ptrdiff_t>(std::min(quiet.size(), kAskedMax));
  std::partial_sort(quiet.begin(), end, quiet.end(),
                    [&](const Link* a, const Link* b) { return first(a) < first(b); });
  for (auto it = quiet.begin(); it != end; ++it) {
    Link& link = **it;
    effects.add(AskPeer{link.peer});
    if (!link.asked) link.asked = now;
  }
}

void PeerLinks::cut_silent(Link& link, TimePoint now, const AgentVoice& voice,
                           AgentEffects& effects) {
  if (link.reach == Reach::kTrying) {
    if (link.heard == TimePoint{}) link.heard = now;
    const Duration deadline = link.again           ? Duration(kConnectAgain)
                              : calls(link, voice) ? limits::kBulkConnectDeadline
                                                   : limits::kBulkExpectDeadline;
    if (now - link.heard < deadline) return;
    effects.add(ForgetPeer{link.peer});
    cut(link, {"no new connection came about", LinkFault::kNobody}, voice, effects);
  } else if (link.reach == Reach::kUp && link.asked && now - *link.asked >= kPeerSilence) {
    effects.add(ForgetPeer{link.peer});
    cut(link, {"nothing was heard of it for too long"}, voice, effects);
  }
}

void PeerLinks::slept(TimePoint now) {
  for (auto& [node, link] : links_) {
    if (link.asked) link.asked = now;
    if (link.reach == Reach::kTrying) link.heard = now;
  }
}

// ------------------------------------------------------------------------------------------------

bool PeerLinks::reaches(NodeId node) const {
  const auto it = links_.find(node);
  return it != links_.end() && it->second.reach == Reach::kUp;
}

Status PeerLinks::connected(NodeId node, Incarnation incarnation) const {
  const auto it = links_.find(node);
  const bool known = it != links_.end() && it->second.peer.incarnation == incarnation;
  switch (known ? it->second.reach : Reach::kTold) {
    case Reach::kTold:
      return not_found("They have no connection: nothing that is served goes between them.");
    case Reach::kTrying:
      return unavailable("They have no connection yet: they are about to make one.");
    case Reach::kDown:
      return unavailable("Their connection is down.");
    case Reach::kUp:
      break;
  }
  return {};
}

std::string PeerLinks::violation(const AgentVoice& voice) const {
  if (voice.id == NodeId{} && !links_.empty()) return "a node that is no member has peers";
  for (const auto& [node, link] : links_) {
    if (link.peer.id != node) return "a peer is known by the id of another";
    if (node == voice.id) return "a node is its own peer";
    if (link.asked && link.reach != Reach::kUp)
      return "a peer owes a sign of life without a connection";
  }
  return {};
}

}  // namespace troupe
