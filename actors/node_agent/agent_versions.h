#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/node_agent/agent_voice.h"
#include "actors/node_agent/peer_links.h"

namespace troupe {

/// The versions of the placement that a member knows: one is active while another one is loaded.
///
///     Load ─► pending ─ weights, actors and peers there ─► Loaded
///     Activate ─► active ─ no question by older routes is open ─► Activated
///     Retire ─► what it does not give goes, a pending version with it
class AgentVersions {
 public:
  /// What of a worker a placement must fit.
  struct Fit {
    std::size_t devices = 0;
    const std::string& model_path;
    const std::string& checkpoint_hash;
  };

  void load(const Load& load, const Fit& fit, AgentVoice& voice, PeerLinks& links,
            AgentEffects& effects);
  void activate(const Envelope& envelope, PlacementVersion version, AgentVoice& voice,
                AgentEffects& effects);
  void retire(const Envelope& envelope, PlacementVersion version, AgentVoice& voice,
              PeerLinks& links, AgentEffects& effects);
  /// A pending version that needs that node is over; the head sends another.
  void lose(NodeId node, AgentEffects& effects);
  /// A node of the active version is lost, as the head says.
  void note_lost(NodeId node);
  /// What is active may be wrong: it is not kept without a head.
  void doubt() { doubted_ = true; }
  /// The membership begins or ends.
  void clear();

  /// Whether something is active that may be kept without a head.
  bool may_suspend() const { return active_ && !doubted_; }
  /// The head is gone, and the membership: what is active stays, as that life's.
  void suspend(const WorkerLife& life, AgentEffects& effects);
  /// The life whose membership is over and whose versions are kept; none: there are none.
  const std::optional<WorkerLife>& suspended() const { return suspended_; }
  /// It goes on under another head, whose next version may have any newer number.
  void resume() { suspended_.reset(); }
  /// What is kept, for a head that may let it go on.
  HeldRole held_role() const;

  void progress(const LoadProgress& progress, const AgentVoice& voice, AgentEffects& effects) const;
  void loaded(PlacementVersion version, const AgentVoice& voice, const PeerLinks& links,
              AgentEffects& effects);
  void load_failed(PlacementVersion version, Error error, AgentVoice& voice,
                   AgentEffects& effects);
  void settled(PlacementVersion version, const AgentVoice& voice, AgentEffects& effects) const;
  /// Says Loaded once all is there. Only the peers of that version count: others may be lost, or
  /// never come.
  void report_if_loaded(const AgentVoice& voice, const PeerLinks& links, AgentEffects& effects);

  /// Whether a version that is here has routes to that node, besides what waits for its Retire.
  bool needs(NodeId node) const;
  std::optional<PlacementVersion> active() const { return active_; }
  /// The version that is to be loaded and has not been reported yet, if any.
  std::optional<PlacementVersion> loading() const {
    if (!pending_ || pending_->reported) return std::nullopt;
    return pending_->version;
  }
  std::string violation() const;

 private:
  /// The version that is being loaded, or has been and waits for its activation.
  struct Pending {
    PlacementVersion version;
    PeerLinks::Nodes nodes;  ///< of all its placement
    PeerLinks::Nodes peers;  ///< of them, those on this node's routes
    VersionWorkPtr work = nullptr;
    bool here = false;      ///< weights and actors are
    bool reported = false;  ///< as Loaded
  };
  void fail(Error error, AgentVoice& voice, AgentEffects& effects);

  std::optional<Pending> pending_;
  std::optional<PlacementVersion> active_;
  VersionWorkPtr active_work_;
  PeerLinks::Nodes active_peers_;
  PeerLinks::Nodes lost_;  // of the active version's nodes
  std::optional<WorkerLife> suspended_;
  bool doubted_ = false;
  PlacementVersion newest_;  // of all versions that this membership heard of
};

}  // namespace troupe
