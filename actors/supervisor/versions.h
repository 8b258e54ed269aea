#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/supervisor/turn.h"
#include "model/placement/replan.h"
#include "runtime/limits.h"

namespace troupe {

/// The version of the placement that is in force and the one that is to follow it. They coexist:
///
///     in force   none ── inherit ──► settled
///                none ── activate ──► settling ── Activated from all ──► settled
///                                        ▲                                  │
///                                        └──────────── activate ────────────┘
///     next       none ── load ──► loads ── Loaded from all ──► activate
///                  ▲                └── a member fails ──► waits ── its time comes ──► none
///                  └─────────── abandon ──┘
///
/// What was lost is taken out of the version in force at once, whatever its state.
class PlacementVersions {
 public:
  enum class InForce : std::uint8_t {
    kNone,      ///< nothing has been activated yet
    kSettling,  ///< members may still wait by older routes; older versions are kept
    kSettled,   ///< older versions have been let go
  };
  enum class Next : std::uint8_t {
    kNone,
    kLoads,  ///< members load it
    kWaits,  ///< a load failed; another one may begin later
  };

  /// Null before the first.
  const Placement* active() const { return in_force_ == InForce::kNone ? nullptr : &active_; }
  /// Null unless one loads.
  const Placement* pending() const { return next_ == Next::kLoads ? &pending_ : nullptr; }
  /// Requests can be served with the one in force.
  bool serves() const { return serves_; }
  /// Nothing loads, and older versions have been let go.
  bool quiet() const { return next_ != Next::kLoads && in_force_ != InForce::kSettling; }
  bool settling() const { return in_force_ == InForce::kSettling; }
  std::uint32_t next_replica() const { return next_replica_; }

  // --- The next version
  /// Whether a load may begin now.
  bool may_load(TimePoint now);
  /// Sends Load to all who get, have or had a part. Steps have at most `step_tokens`.
  void load(Placement placement, std::int32_t step_tokens, SupervisorTurn& turn);
  /// It goes on reading. `pause`: how long it may say nothing now; none: it has read all.
  void progress(NodeId node, TimePoint now, std::optional<Duration> pause);
  void loaded(NodeId node);
  /// It has loaded the version in force after that was activated without it, and follows.
  void follow(NodeId node, PlacementVersion version, SupervisorTurn& turn);
  /// Whether all have loaded the version that loads.
  bool all_loaded() const;
  std::set<NodeId> loaders() const;
  bool loads_on(NodeId node) const { return loading_.contains(node); }
  /// A member that loads without progress.
  std::optional<NodeId> stuck(TimePoint now) const;
  /// A member that has said nothing for so long that the others should do without it if they can;
  /// it is named again later.
  std::optional<NodeId> silent(TimePoint now);
  /// Members in trouble that are given nothing new are not waited for any longer.
  void leave_behind(TimePoint now);
  /// Whether the version that loads gives a node what the one in force does not.
  bool gives_new(NodeId node) const;
  /// Gives up the version that loads; what members have read stays with them for the next one.
  void abandon();
  /// Where none follows what was given up while the one in force serves on, members let go of what
  /// they loaded for it.
  void let_go(SupervisorTurn& turn);
  /// No load begins before this much time has passed, twice as much the next time.
  Duration wait_for_retry(TimePoint now);
  /// Something has changed, so that there is nothing to wait for.
  void retry_now();
  /// When that wait ends, if there is one.
  std::optional<TimePoint> retry_at() const;

  // --- The version in force
  /// What an earlier head had in force, before anything else is: it serves no requests yet. `by`:
  /// all who have it. Its replicas have had numbers below `next_replica`.
  void inherit(Placement living, std::set<NodeId> by, std::uint32_t next_replica);
  /// Brings the one that loads into force. Activate goes to all who loaded it.
  void activate(const ModelCosts& model, SupervisorTurn& turn);
  /// That member waits for nothing by older routes, or is no member any more.
  void settled(NodeId node) { settling_.erase(node); }
  /// Nobody is waited for any longer than this.
  void settle_by_deadline(TimePoint now);
  /// Sends Retire once all have settled; true then.
  bool retire_if_settled(SupervisorTurn& turn);
  /// Leaves in force what lies on these devices. Returns the replicas that are lost.
  std::vector<std::uint32_t> keep_living(const std::vector<PlacementDevice>& devices,
                                         const ModelCosts& model);
  /// The cluster ends: nothing is loaded or let go any more.
  void stop();

  // --- What lies where
  /// Whether routes of a version lead from one to the other.
  bool connects(NodeId a, NodeId b) const;
  /// Shards and copies of experts that lie on a node.
  std::size_t pieces_on(NodeId node) const;
  std::size_t shards_on(NodeId node) const;
  /// Replicas in force that have a shard on a node, or may ask experts there.
  std::vector<std::uint32_t> replicas_using(NodeId node) const;
  /// What of the version in force lies on a node, for people.
  std::vector<std::string> parts_on(NodeId node) const;
  /// Whether a replica of that node is in one of the versions.
  bool has_replica(std::uint32_t replica, NodeId node) const;

  void arrange_wake(SupervisorEffects& effects) const;
  std::string violation(const Membership& members) const;

 private:
  struct Loading {
    bool done = false;
    TimePoint deadline{};                       ///< for its next progress
    std::optional<TimePoint> silent_from = {};  ///< while it reads
    std::optional<TimePoint> behind_from = {};  ///< it is not waited for
    bool behind = false;
  };

  InForce in_force_ = InForce::kNone;
  Placement active_;
  bool serves_ = false;
  std::set<NodeId> served_by_;  ///< who had a part in it when it was activated
  std::set<NodeId> settling_;   ///< who has to say Activated
  std::set<NodeId> behind_;     ///< it was activated without them
  TimePoint settle_deadline_{};
  Next next_ = Next::kNone;
  Placement pending_;
  bool given_up_ = false;              ///< members may hold more than the one in force gives
  std::map<NodeId, Loading> loading_;  ///< who has to say Loaded
  TimePoint retry_at_{};
  Duration retry_backoff_ = limits::kLoadRetryMin;
  std::uint64_t next_version_ = 1;
  std::uint32_t next_replica_ = 0;
};

/// Who has a part in it.
std::set<NodeId> nodes_with_parts(const Placement& placement);

/// Whether they give everyone the same.
bool same_parts(const Placement& a, const Placement& b);

}  // namespace troupe
