#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/machine.h"
#include "actors/supervisor/expert_load.h"
#include "actors/supervisor/speed_watch.h"
#include "actors/supervisor/times.h"
#include "model/placement/replan.h"
#include "runtime/limits.h"

namespace troupe {

struct SupervisorOptions {
  std::string cluster_id;
  std::string version;
  std::string model_path;
  std::string model_name;
  std::string checkpoint_hash;
  std::string host;  ///< the head's; workers of the same host are local
  std::int32_t pid = 0;
  std::string join_line;  ///< what to run on a worker, word for word
  EngineOptions engine;   ///< max_model_len resolved
  /// The model's bytes with a kernel family.
  std::function<ModelCosts(Numerics)> costs;
  std::int32_t expert_groups = 1;  ///< gate groups of a layer
  /// Fills with bits that nobody can guess.
  std::function<void(std::span<std::byte>)> random;
  /// The head's own incarnation; workers get the numbers after it. See first_incarnation().
  Incarnation incarnation;
  /// The next new worker's id, as SupervisorActions::keep_next_node last said; 1 at the first
  /// start.
  std::uint32_t next_node = 1;
  TimePoint started{};
  std::int64_t started_unix_ms = 0;
};

/// The first incarnation of a head's life, larger than all that earlier lives gave: they gave fewer
/// than 2^32 each. `kept` is the value of the life before, which the shell reads from the state
/// folder and replaces before it uses the new one; 0 when there is none, then the clock has to do.
constexpr std::uint64_t first_incarnation(std::uint64_t kept, std::int64_t unix_us) {
  const std::uint64_t next = kept == 0 ? 1 : kept + (1ull << 32);
  return unix_us > 0 && static_cast<std::uint64_t>(unix_us) > next
             ? static_cast<std::uint64_t>(unix_us)
             : next;
}

enum class ClusterState : std::uint8_t { kForming, kLoading, kReady, kDegraded, kStopping };
std::string_view to_string(ClusterState state);

enum class MemberState : std::uint8_t { kJoining, kReady, kDraining, kLost };
std::string_view to_string(MemberState state);

/// A replica that requests can be sent to.
struct ReplicaRoute {
  std::uint32_t replica = 0;
  Address address;
  std::int32_t kv_blocks = 0;
  bool slow = false;  ///< on a device that is far slower than it was
  bool operator==(const ReplicaRoute&) const = default;
};

/// What the Supervisor's shell has to do: keeps and binds first, then sends, then closes, then the
/// rest.
struct SupervisorActions : Actions {
  /// To be in the state folder before anything is sent: no id is ever given to a second worker, not
  /// even by a later life of the head, which does not know who is cut off and still serves with it.
  std::optional<std::uint32_t> keep_next_node;
  /// From now on what the session brings comes from (node, incarnation), NodeAgent, and what goes
  /// to that address goes by the session.
  struct BindSession {
    std::uint32_t session = 0;
    NodeId node;
    Incarnation incarnation;
  };
  std::vector<BindSession> bind_sessions;
  /// After what was sent has left; a binding of that (node, incarnation) ends.
  struct CloseSession {
    std::uint32_t session = 0;
    std::string reason;
  };
  std::vector<CloseSession> close_sessions;

  /// For the Router, in this order. These replicas died with a node of theirs.
  struct ReplicasLost {
    std::vector<std::uint32_t> replicas;
    std::string why;
  };
  std::optional<ReplicasLost> replicas_lost;
  /// These serve now, and no others.
  struct ReplicasChanged {
    PlacementVersion version;
    std::vector<ReplicaRoute> replicas;
  };
  std::optional<ReplicasChanged> replicas_changed;
  /// Whether new requests may wait although no replica can take them, and if not, why.
  struct Admission {
    bool waits = false;
    std::string why;
    bool operator==(const Admission&) const = default;
  };
  std::optional<Admission> admission;
  /// Nothing is answered any more, and why.
  std::optional<std::string> requests_end;

  /// For the metrics: tokens of the experts, as a node has just told, and every few seconds how
  /// uneven the load is, by layer.
  std::optional<ExpertCounts> counted;
  std::map<std::int32_t, double> imbalances;

  std::vector<ClusterEvent> events;  ///< to log and to hand to subscribers in this process
  bool stop_self = false;            ///< everyone has left: the head may end
};

/// Membership and placement of the cluster: who is in, who holds what, in which version.
///
///     session_up -> Greeting;  Join -> Welcome | Refused;  Renew -> Renewed
///
/// A change is a version that shares what lives with the one in force, which serves on meanwhile:
///
///     plan -> Load -> Loaded from all -> Activate -> Activated from all -> Retire -> plan ...
///       ^ a member joins, is lost, drains; a device fails; the load moves
///
/// Sessions that are not bound to a member are addressed as kClient with the session's number.
class Supervisor {
 public:
  struct Member {
    NodeId id;
    Incarnation incarnation;
    std::uint32_t session = 0;
    Join inventory;
    MemberState state = MemberState::kJoining;
    TimePoint joined{};
    TimePoint last_renew{};
    std::uint64_t last_sequence = 0;
    std::vector<DeviceReport> devices;
    std::vector<ReplicaReport> replicas;
    std::string lost_reason;
    /// Why it takes nothing new: its checkpoint cannot be read any more, or it has less memory than
    /// it said. Until then.
    std::string closed_reason;
    TimePoint closed_until{};
    bool told_to_end = false;  ///< drained
    // While a version loads.
    bool loaded = false;
    std::uint64_t load_done = 0;
    std::uint64_t load_total = 0;
    TimePoint load_deadline{};
  };
  struct Counters {
    std::uint64_t joined = 0;
    std::uint64_t refused_joins = 0;
    std::uint64_t refused_messages = 0;  ///< of an old incarnation, or out of place
    std::uint64_t garbage = 0;           ///< messages that lie
    std::uint64_t lost = 0;
    std::uint64_t placements = 0;
    std::uint64_t recoveries = 0;  ///< times that it served again after it could not
    std::uint64_t moves = 0;       ///< copies of experts that were loaded to even out the load
    std::uint64_t unreachable_peers = 0;
  };

  explicit Supervisor(SupervisorOptions options);

  /// An authenticated connection. `peer`: where from, for people.
  void session_up(std::uint32_t session, std::string peer, TimePoint now,
                  SupervisorActions& actions);
  void session_down(std::uint32_t session, std::string_view reason, TimePoint now,
                    SupervisorActions& actions);
  void on(const Envelope& envelope, TimePoint now, SupervisorActions& actions);
  void on_wake(TimePoint now, SupervisorActions& actions);
  /// Ends the cluster in order; SIGTERM of the head.
  void stop(std::string reason, TimePoint now, SupervisorActions& actions);
  /// Anything else that people should know, such as what the control lane refused.
  void record(std::string kind, std::string text, TimePoint now, SupervisorActions& actions);

  /// What to run on a worker; known once the head listens.
  void set_join_line(std::string line) { options_.join_line = std::move(line); }
  /// Answers StatusQuery: the shell sets it, because the Router's numbers are in it too.
  void set_status_source(std::function<std::string(TimePoint)> source) {
    status_source_ = std::move(source);
  }

  // What the status is made of.
  ClusterState state() const { return state_; }
  const std::string& message() const { return message_; }
  const SupervisorOptions& options() const { return options_; }
  std::optional<Numerics> numerics() const { return numerics_; }
  const std::map<NodeId, Member>& members() const { return members_; }
  const std::deque<Member>& gone() const { return gone_; }  ///< lost ones, newest last
  /// In force, as far as it lives: null before the first.
  const Placement* active() const { return active_ ? &*active_ : nullptr; }
  /// Being loaded, null if none is.
  const Placement* pending() const { return pending_ ? &*pending_ : nullptr; }
  /// The one in force, else the one being loaded.
  const Placement* placement() const { return active_ ? active() : pending(); }
  const ExpertLoad& expert_load() const { return expert_load_; }
  std::size_t moves_pending() const;  ///< copies that the goal has and the version in force lacks
  std::optional<TimePoint> last_rebalance() const { return last_rebalance_; }
  Survival survival() const;
  bool slow(const DeviceRef& device) const { return slow_.contains(device); }
  const std::deque<ClusterEvent>& events() const { return events_; }
  const Counters& counters() const { return counters_; }
  Address address() const;

 private:
  struct Session {
    std::string peer;
    TimePoint opened{};
    bool client = false;  ///< said ClientHello
    bool subscribed = false;
    std::optional<NodeId> member;  ///< said Join and was let in
    bool closing = false;
  };

  // supervisor.cpp: sessions
  void on_stranger(std::uint32_t session, const Envelope& envelope, TimePoint now,
                   SupervisorActions& actions);
  void on_client(std::uint32_t session, const Envelope& envelope, TimePoint now,
                 SupervisorActions& actions);
  void refuse_session(std::uint32_t session, const Error& error, TimePoint now,
                      SupervisorActions& actions);
  void refuse_message(const Envelope& envelope, std::string reason, SupervisorActions& actions);
  void close(std::uint32_t session, std::string reason, SupervisorActions& actions);
  void check_strangers(TimePoint now, SupervisorActions& actions);
  void wake(TimePoint now, SupervisorActions& actions) const;
  Address session_address(std::uint32_t session) const;
  static Address member_address(const Member& member);

  // membership.cpp
  void on_join(std::uint32_t session, const Join& join, TimePoint now, SupervisorActions& actions);
  Status check_join(const Join& join) const;
  NodeId choose_id(const Join& join, TimePoint now, SupervisorActions& actions);
  std::optional<Numerics> common_numerics() const;
  void on_member(Member& member, const Envelope& envelope, TimePoint now,
                 SupervisorActions& actions);
  void on_renew(Member& member, const Renew& renew, TimePoint now, SupervisorActions& actions);
  void on_expert_counts(const ExpertCounts& counts, TimePoint now, SupervisorActions& actions);
  void on_device_failed(const Member& member, TimePoint now, SupervisorActions& actions);
  /// Fences the member. The caller considers what follows once it is done.
  void remove_member(NodeId id, const std::string& why_gone, bool orderly, TimePoint now,
                     SupervisorActions& actions);
  void check_leases(TimePoint now, SupervisorActions& actions);
  void check_speed(TimePoint now, SupervisorActions& actions);

  // links.cpp: pairs of members that cannot reach each other
  void on_unreachable(const Member& reporter, const PeerUnreachable& report, TimePoint now,
                      SupervisorActions& actions);
  void fence_one_of(NodeId a, NodeId b, const std::string& reason, TimePoint now,
                    SupervisorActions& actions);
  const FabricToken& token_between(const Member& a, const Member& b);
  Peer peer_of(const Member& member, const Member& peer);

  // planning.cpp: what the next version is
  void consider(TimePoint now, SupervisorActions& actions);
  void form(TimePoint now, SupervisorActions& actions);
  void repair(TimePoint now, SupervisorActions& actions);
  void improve(TimePoint now, SupervisorActions& actions);
  bool make_goal(TimePoint now, SupervisorActions& actions);
  Placement step_to_goal() const;
  void check_balance(TimePoint now, SupervisorActions& actions);
  void keep_what_helps(Placement& goal, std::set<std::int32_t>& layers);
  ReplanInput replan_input() const;
  std::vector<PlacementDevice> devices_here() const;
  void cannot(const Error& error, TimePoint now, SupervisorActions& actions);
  void waits_for(const std::string& message, TimePoint now, SupervisorActions& actions);
  std::string waiting_message() const;

  // formation.cpp: how a version comes into force
  void load(Placement placement, TimePoint now, SupervisorActions& actions);
  void on_load_progress(Member& member, const LoadProgress& progress, TimePoint now);
  void on_loaded(Member& member, const Loaded& loaded, TimePoint now, SupervisorActions& actions);
  void on_load_failed(Member& member, const LoadFailed& failed, TimePoint now,
                      SupervisorActions& actions);
  void check_loads(TimePoint now, SupervisorActions& actions);
  void fail_load(Member& member, const Error& error, TimePoint now, SupervisorActions& actions);
  void activate(TimePoint now, SupervisorActions& actions);
  void on_activated(const Member& member, PlacementVersion version, TimePoint now,
                    SupervisorActions& actions);
  void retire_if_settled(TimePoint now, SupervisorActions& actions);
  void lose_devices(const std::string& why, TimePoint now, SupervisorActions& actions);
  void tell_router(SupervisorActions& actions) const;
  void note_state(TimePoint now, SupervisorActions& actions);
  const ModelCosts& model() const;
  void set_active(Placement placement);
  void change_goal(TimePoint not_before);
  bool quarantined(NodeId node) const;
  static bool same_parts(const Placement& a, const Placement& b);
  std::vector<std::string> parts_on(NodeId node) const;
  void finish_stop(TimePoint now, SupervisorActions& actions);

  // operations.cpp: drains and rebalances that somebody asked for
  void on_drain(std::uint32_t session, const DrainQuery& query, TimePoint now,
                SupervisorActions& actions);
  void on_rebalance(std::uint32_t session, const RebalanceQuery& query, TimePoint now,
                    SupervisorActions& actions);
  void fail_drains(const Error& error, TimePoint now, SupervisorActions& actions);
  void fail_rebalances(const Error& error, SupervisorActions& actions);
  void report_operations(TimePoint now, SupervisorActions& actions);
  void node_gone(NodeId node, bool orderly, SupervisorActions& actions);
  std::size_t pieces_on(NodeId node) const;

  SupervisorOptions options_;
  ClusterState state_ = ClusterState::kForming;
  std::string message_;
  std::optional<Numerics> numerics_;
  std::uint64_t next_incarnation_;
  std::uint32_t next_node_;
  std::uint64_t next_version_ = 1;
  std::map<std::uint32_t, Session> sessions_;
  std::map<NodeId, Member> members_;
  std::deque<Member> gone_;
  std::optional<Placement> active_;
  std::optional<Placement> pending_;
  std::set<NodeId> loading_;   ///< who has to say Loaded before pending_ comes into force
  std::set<NodeId> served_by_;  ///< who had a part in the version in force when it was activated
  std::set<NodeId> settling_;  ///< who has to say Activated before older versions are let go
  TimePoint settle_deadline_{};
  bool retire_due_ = false;  ///< the version in force has been activated, older ones not let go
  bool serves_ = false;      ///< requests can be served with active_
  mutable std::optional<ModelCosts> model_;   ///< options_.costs(*numerics_), once
  mutable std::optional<Survival> survival_;  ///< of active_, until something changes
  /// Where the placement is to get to, step by step; none: to be made anew when there is time.
  std::optional<Placement> goal_;
  bool goal_reached_ = false;
  std::set<std::int32_t> balance_left_;  ///< layers still to be laid out by their load
  bool balance_asked_ = false;           ///< somebody wants it, however little it helps
  TimePoint improve_at_{};               ///< not before
  std::uint32_t next_replica_ = 0;
  bool formed_ = false;  ///< has served once
  std::optional<TimePoint> unserved_since_;
  std::string trouble_;  ///< why no plan could be made
  SupervisorActions::Admission admission_;
  ExpertLoad expert_load_;
  std::optional<TimePoint> last_rebalance_;
  TimePoint next_balance_check_{};
  TimePoint next_balance_{};  ///< by itself, not before
  std::map<DeviceRef, SpeedWatch> speeds_;
  std::set<DeviceRef> slow_;

  /// Drawn once for each pair of lives, so that a connection that stands need not be made anew.
  std::map<std::pair<Incarnation, Incarnation>, FabricToken> tokens_;
  /// A pair of members whose connection broke, and that were told to make it anew.
  struct BrokenLink {
    std::set<NodeId> reported;  ///< who has said so since then
    TimePoint since{};
  };
  std::map<std::pair<Incarnation, Incarnation>, BrokenLink> broken_links_;
  /// Nodes that were fenced for a link, and when they may take part again.
  struct Quarantine {
    TimePoint until{};
    Duration length{};
    bool over = false;  ///< only remembered, in case it happens again
  };
  std::map<NodeId, Quarantine> quarantine_;

  struct Operation {
    std::uint32_t session = 0;
    std::uint64_t query = 0;
    std::optional<NodeId> drains;  ///< none: it rebalances
    std::size_t total = 0;
    std::size_t said = 0;  ///< pieces left, as told last
  };
  std::vector<Operation> operations_;
  std::optional<TimePoint> retry_at_;
  Duration retry_backoff_{};
  std::optional<TimePoint> stop_deadline_;
  std::deque<ClusterEvent> events_;
  Counters counters_;
  std::function<std::string(TimePoint)> status_source_;
};

}  // namespace troupe
