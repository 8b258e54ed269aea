#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/supervisor/balance.h"
#include "actors/supervisor/canaries.h"
#include "actors/supervisor/goal.h"
#include "actors/supervisor/inheritance.h"
#include "actors/supervisor/operations.h"
#include "actors/supervisor/proofs.h"
#include "actors/supervisor/service.h"
#include "actors/supervisor/versions.h"
#include "model/placement/small_devices.h"

namespace troupe {

/// Who takes nothing new under a plan, of the members that could not load their part.
struct LeftOut {
  TimePoint needed_from{};     ///< not those that may be needed from then on
  std::optional<NodeId> also;  ///< but this one
};
inline const LeftOut kNobodyOut{TimePoint::max(), {}};

/// Which version of the placement comes next, and when: the first one, what is missing after a
/// loss, or a step towards the goal. A change is a version that shares what lives with the one in
/// force, which serves on meanwhile:
///
///     plan ─► Load ─► Loaded from all, proven ─► Activate ─► Activated from all ─► Retire ─► plan
///       ▲ a member joins, is lost, drains; a device fails; the load moves
class PlacementLifecycle {
 public:
  PlacementLifecycle(std::string message, const KnownState& known, const SupervisorOptions& options)
      : inheritance_(known.numerics.has_value()),
        service_(std::move(message)),
        kept_numerics_(known.numerics),
        proofs_(known.tensors, options.head_reads),
        canaries_(known.canary, options) {}

  /// After anything that may ask for another version: begins one if it is time, and says how the
  /// cluster is.
  void consider(SupervisorTurn& turn);
  /// Loads without progress, and waits that have ended. consider() follows.
  void on_wake(SupervisorTurn& turn);
  void stop(const std::string& reason);

  // --- What members say
  void on_progress(Member& member, const LoadProgress& progress, SupervisorTurn& turn);
  void on_loaded(Member& member, PlacementVersion version, SupervisorTurn& turn);
  void on_load_failed(Member& member, const LoadFailed& failed, SupervisorTurn& turn);
  void on_activated(const Member& member, PlacementVersion version, SupervisorTurn& turn);
  void on_counts(const ExpertCounts& counts, SupervisorTurn& turn);
  void on_proofs(const Member& member, const TensorProofs& proofs, SupervisorTurn& turn);
  void on_read(const TensorsRead& read, SupervisorTurn& turn);
  /// A copy or a device has been wrong, at most since then.
  void doubt_canary(TimePoint since, SupervisorTurn& turn);
  void on_canary(const Member& member, const CanaryResult& result, SupervisorTurn& turn);
  /// What replicas that use the node (none: all) computed so far may be wrong: something there was,
  /// or is gone before it has proven that it was not.
  void forget_prefixes(std::optional<NodeId> node, SupervisorTurn& turn) const;
  /// Members whose copies or devices are wrong, and why: they have to go.
  std::vector<Verdict> take_wrong() { return std::exchange(wrong_, {}); }
  /// Whether the life that a worker has kept goes on; before it is a member.
  bool inherits(const Join& join, SupervisorTurn& turn);
  /// Members whose life does not go on after all.
  std::vector<NodeId> take_superseded() { return inheritance_.take_superseded(); }
  /// A load that failed need not be waited for any more.
  void member_joined(TimePoint now);
  /// Its part in loads and operations is over. devices_lost() follows once all are named that go
  /// in this turn.
  void member_gone(NodeId node, bool orderly, SupervisorTurn& turn);
  /// Takes what is on no living device out of the versions; `why` is for clients. Returns whether
  /// replicas were lost.
  bool devices_lost(const std::string& why, SupervisorTurn& turn);
  /// The same on a node that stays: what its replicas have elsewhere is let go before anything is
  /// loaded. (Of a node that is lost, the others hear.)
  void device_failed(const std::string& why, SupervisorTurn& turn);
  /// Other devices are slow, or are to be drained for it.
  void on_slow_devices(const SlowDevices::Changes& changes, SupervisorTurn& turn);
  /// The goal is planned again.
  void change_goal(TimePoint not_before);

  // --- What clients ask for
  void drain(std::uint32_t session, const DrainQuery& query, SupervisorTurn& turn);
  void rebalance(std::uint32_t session, const RebalanceQuery& query, SupervisorTurn& turn);
  void session_ended(std::uint32_t session) { operations_.session_ended(session); }

  const PlacementVersions& versions() const { return versions_; }
  const ServiceState& service() const { return service_; }
  const Proofs& proofs() const { return proofs_; }
  bool proven(std::uint32_t replica) const { return canaries_.proven(replica); }
  const ExpertBalance& balance() const { return balance_; }
  std::size_t moves_pending() const { return goal_.moves_pending(versions_.active()); }
  /// What the loss of each node would mean, of the version in force.
  Survival survival(const SupervisorOptions& options, const Membership& members,
                    const Links& links) const;

  void arrange_wake(TimePoint now, SupervisorEffects& effects) const;
  std::string violation(const Membership& members, const Sessions& sessions) const;

 private:
  // placement_lifecycle.cpp: how a version comes into force
  void load(Placement placement, SupervisorTurn& turn);
  void fail_load(Member& member, const Error& error, SupervisorTurn& turn);
  void fail_silent(SupervisorTurn& turn);
  Duration pause_of(const Member& member, const SupervisorTurn& turn) const;
  void activate_if_proven(SupervisorTurn& turn);
  void activate(SupervisorTurn& turn);
  void hear_verdicts(SupervisorTurn& turn);
  bool serves(NodeId node) const;
  void discard(const Member& member, const std::vector<std::string>& tensors,
               SupervisorTurn& turn) const;
  void note(SupervisorTurn& turn) { service_.note(versions_, canaries_.any_proven(), turn); }
  void retire_if_settled(SupervisorTurn& turn);
  void send_replicas(SupervisorTurn& turn) const;
  void fail_drains(const Error& error, SupervisorTurn& turn);
  void report_operations(SupervisorTurn& turn);
  const ModelCosts& model(const SupervisorOptions& options, const Membership& members) const;

  // inherit.cpp: what an earlier head had in force
  void inherit(SupervisorTurn& turn);

  // planning.cpp: what it is
  static Error kept_out(const SupervisorTurn& turn);
  /// And how many tokens a step may have then.
  struct Planned {
    Placement placement;
    std::int32_t step_tokens = 0;
    std::string lacks;  ///< what steps may lack all the same, for people
  };
  using Planner = std::function<Result<Placement>(const ReplanInput&)>;
  Result<Planned> plan_first(const LeftOut& out, const SupervisorTurn& turn) const;
  Result<Planned> plan_with_steps(ReplanInput input, const Planner& plan,
                                  const SupervisorTurn& turn) const;
  static Result<Planned> plan_tight(ReplanInput input, const Planner& plan, std::int32_t tokens,
                                    const SupervisorTurn& turn);
  static CostsOfSteps compute_costs(const ReplanInput& input, const SupervisorOptions& options,
                                    const Membership& members);
  void take_steps(const Planned& plan, SupervisorTurn& turn);
  void form(SupervisorTurn& turn);
  void keep_numerics(SupervisorTurn& turn);
  void note_small(std::int32_t step_tokens, SupervisorTurn& turn);
  void welcome(SupervisorTurn& turn);
  void improve(SupervisorTurn& turn);
  bool make_goal(SupervisorTurn& turn);
  Result<Placement> plan_goal(const ReplanInput& input, SupervisorTurn& turn);
  Placement step_to_goal(const SupervisorTurn& turn) const;
  /// Loads the step if there is one.
  bool go_on(SupervisorTurn& turn);
  void cannot(const Error& error, SupervisorTurn& turn);
  ReplanInput replan_input(const SupervisorOptions& options, const Membership& members,
                           const Links& links, const LeftOut& out = {}) const;
  ReplanInput replan_input(const SupervisorTurn& turn, const LeftOut& out = {}) const {
    return replan_input(turn.options, turn.members, turn.links, out);
  }

  // repair.cpp: what is missing after a loss
  Result<Planned> repair_of(ReplanInput input, const SupervisorTurn& turn) const;
  Result<Planned> plan_repair(const LeftOut& out, const SupervisorTurn& turn) const {
    return repair_of(replan_input(turn, out), turn);
  }
  Result<Placement> plan_room(const SupervisorTurn& turn) const;
  void repair(SupervisorTurn& turn);
  std::vector<std::uint32_t> order_of_ends(ReplanInput input, const SupervisorTurn& turn) const;
  void begin_again(SupervisorTurn& turn);
  void let_go_first(Placement placement, SupervisorTurn& turn);
  bool can_do_without(NodeId node, SupervisorTurn& turn) const;
  /// What decides whether there is a plan.
  struct Situation {
    std::vector<PlacementDevice> devices;
    std::set<DeviceRef> closed, closed_if_needed, leaving;
    /// Whether they drain, and why they are closed.
    std::vector<std::tuple<NodeId, Incarnation, MemberState, std::string>> members;
    Placement active;
    bool operator==(const Situation&) const = default;
  };
  Situation situation(const SupervisorTurn& turn) const;
  void impossible(const Error& error, SupervisorTurn& turn);
  /// Nothing has changed since.
  bool still_impossible(SupervisorTurn& turn);

  /// What people were told, which is not told again.
  struct Told {
    SmallDevices small;
    std::string fewer;                                      ///< why there are not all replicas
    std::string tight;                                      ///< what steps may lack
    std::optional<std::pair<Situation, Error>> impossible;  ///< that there is no plan, and why
  };

  PlacementVersions versions_;
  Inheritance inheritance_;
  PlacementGoal goal_;
  ExpertBalance balance_;
  Operations operations_;
  ServiceState service_;
  std::optional<Numerics> kept_numerics_;  ///< in the state folder
  Proofs proofs_;
  Canaries canaries_;
  std::vector<Verdict> wrong_;
  /// What devices have memory to compute with, of replicas that begin; none that lives has more.
  std::int32_t step_tokens_ = 0;
  struct Room {
    bool shards_left = false;  ///< of replicas that ended with a device of a node that stays
    std::optional<PlacementVersion> made_by;  ///< it only lets go: loads wait for its end
  } room_;
  Told told_;
  mutable std::optional<ModelCosts> model_;   ///< with the cluster's numerics, once
  mutable std::optional<Survival> survival_;  ///< until something changes
};

}  // namespace troupe
