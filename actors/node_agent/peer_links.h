#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/node_agent/agent_voice.h"
#include "actors/node_agent/link_measuring.h"
#include "actors/node_agent/node_progress.h"
#include "runtime/clock.h"

namespace troupe {

/// The peers that the head told of, and the bulk connections to those on routes of a version that
/// is here. The node with the lower id goes to the other, or the other way round where the head has
/// heard that this does not work. A connection stays as long as routes need it and both lives and
/// the pair's token do.
///
///     told ─ on a route ─► trying ─ up ─► up ─ down, or silent ─► down: the head hears of it once
///      ▲ ▲                   ▲                                     │
///      │ └───────────────────┴───── a new token (Connect, Load) ◄──┘
///      └─ on no route any more: at Retire, or when the peer, which heard of that first, ends it
class PeerLinks {
 public:
  using Nodes = std::set<NodeId>;

  /// What the head tells of peers that it did not tell before. A newer life ends the older one.
  void learn(const std::vector<Peer>& peers, const AgentVoice& voice, AgentEffects& effects);
  /// All of these, as the head told; none if one is not known.
  std::optional<std::vector<Peer>> known(const Nodes& nodes) const;
  /// Connects to those of them to which there is no connection.
  void reach(const Nodes& nodes, const AgentVoice& voice, AgentEffects& effects);
  /// The head has both ends connect once more.
  void connect_again(const Peer& peer, const AgentVoice& voice, AgentEffects& effects);
  /// That life is over. False: a newer one is known, or it is this node.
  bool lose(const MemberLost& lost, const AgentVoice& voice, AgentEffects& effects);
  /// Ends the connections to all others.
  void keep_only(const Nodes& peers, AgentEffects& effects);
  /// The membership is over.
  void forget_all(AgentEffects& effects);

  void up(const PeerUp& peer, TimePoint now, AgentEffects& effects);
  /// `needed`: a version here has routes to it. Else its peer has let go of it, and nobody is told.
  void down(const PeerDown& peer, bool needed, const AgentVoice& voice, AgentEffects& effects);
  /// A peer that is reached sends what cannot be used: its connection ends as if it had broken.
  void distrust(const PeerCorrupt& peer, const AgentVoice& voice, AgentEffects& effects);
  /// With every renewal: those that said nothing lately are asked for a sign of life, some at a
  /// time and those first that something was sent to. One that owes it for too long is cut off,
  /// though nothing was reset.
  void watch(TimePoint now, const std::vector<PeerTraffic>& traffic, const AgentVoice& voice,
             AgentEffects& effects);
  /// This process stood still: what came meanwhile is not known yet.
  void slept(TimePoint now);

  /// Of one of these connections, for the head.
  void measure(const MeasureLink& order, const AgentVoice& voice, AgentEffects& effects) {
    measuring_.begin(order, connected(order.peer, order.incarnation), voice, effects);
  }
  LinkMeasuring& measuring() { return measuring_; }

  bool reaches(NodeId node) const;
  /// Why there is no connection to that life, if there is none. kNotFound: nobody wants one.
  Status connected(NodeId node, Incarnation incarnation) const;
  std::string violation(const AgentVoice& voice) const;

 private:
  enum class Reach : std::uint8_t { kTold, kTrying, kUp, kDown };
  struct Link {
    Peer peer;
    Reach reach = Reach::kTold;
    bool again = false;  ///< the head had both connect once more
    /// The connection before was let go; that it ended may be on its way here all the same.
    bool old_ends = false;
    /// The newest sign of life while it is up; while it is tried, since when.
    TimePoint heard{};
    TimePoint sent{};
    std::optional<TimePoint> asked = {};  ///< since when it owes a sign of life
  };

  /// Whether this node goes to it.
  static bool calls(const Link& link, const AgentVoice& voice);
  void go(Link& link, const AgentVoice& voice, AgentEffects& effects);
  void cut(Link& link, const LinkEnd& end, const AgentVoice& voice, AgentEffects& effects);
  void cut_silent(Link& link, TimePoint now, const AgentVoice& voice, AgentEffects& effects);
  /// Ends the connection to a peer whose life goes on.
  void let_go(Link& link, AgentEffects& effects);
  Link* find(NodeId node, Incarnation incarnation);

  std::map<NodeId, Link> links_;
  LinkMeasuring measuring_;
};

}  // namespace troupe
