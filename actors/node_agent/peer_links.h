#pragma once

#include <map>
#include <string>
#include <vector>

#include "actors/node_agent/agent_voice.h"
#include "runtime/clock.h"

namespace troupe {

/// The bulk connections to the peers that versions of the placement name. The node with the lower
/// id goes to the other. A connection stays as long as both lives and the pair's token do.
///
///     trying ─ up ─► up ─ down, or silent for too long ─► down: the head hears of it once
///       ▲                                                  │
///       └────────── a new token (Connect, Load) ◄──────────┘
class PeerLinks {
 public:
  using Lives = std::map<NodeId, Incarnation>;

  /// Peers of a version. Those that it does not name stay: the active version may need them.
  void take(const std::vector<Peer>& peers, const AgentVoice& voice, AgentEffects& effects);
  /// The head has both ends connect once more.
  void connect_again(const Peer& peer, const AgentVoice& voice, AgentEffects& effects);
  /// That life is over. False: a newer one is known, or it is this node.
  bool lose(const MemberLost& lost, const AgentVoice& voice, AgentEffects& effects);
  /// Lets go of peers that neither of these has.
  void keep_only(const Lives& active, const Lives& pending, AgentEffects& effects);
  /// The membership is over.
  void forget_all(AgentEffects& effects);

  void up(const PeerUp& peer, TimePoint now, AgentEffects& effects);
  void down(const PeerDown& peer, const AgentVoice& voice, AgentEffects& effects);
  void heard(const Address& from, TimePoint now);
  /// With every renewal. A peer that was silent for too long is cut off, though nothing was reset.
  void ping(TimePoint now, const AgentVoice& voice, AgentEffects& effects);

  bool reaches(NodeId node) const;
  std::string violation(const AgentVoice& voice) const;

 private:
  enum class Reach : std::uint8_t { kTrying, kUp, kDown };
  struct Link {
    Peer peer;
    Reach reach = Reach::kTrying;
    bool again = false;  ///< the head had both connect once more
    /// Its newest ping while it is up; while they connect once more, since when.
    TimePoint heard{};
  };

  void reach(const Peer& peer, const AgentVoice& voice, AgentEffects& effects);
  void cut(Link& link, const std::string& reason, const AgentVoice& voice, AgentEffects& effects);
  /// Ends the connection to a peer whose life goes on.
  void let_go(const Link& link, AgentEffects& effects);
  Link* find(NodeId node, Incarnation incarnation);

  std::map<NodeId, Link> links_;
};

}  // namespace troupe
