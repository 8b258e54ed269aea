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
#include "model/placement/plan_placement.h"
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

enum class MemberState : std::uint8_t { kJoining, kReady, kLost };
std::string_view to_string(MemberState state);

/// A replica that requests can be sent to.
struct ReplicaRoute {
  std::uint32_t replica = 0;
  Address address;
  std::int32_t kv_blocks = 0;
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

  /// For the Router: none of the earlier replicas will answer any more.
  struct ReplicasLost {
    PlacementVersion version;
    Error error;
  };
  std::optional<ReplicasLost> replicas_lost;
  /// For the Router: these serve now.
  struct ReplicasChanged {
    PlacementVersion version;
    std::vector<ReplicaRoute> replicas;
  };
  std::optional<ReplicasChanged> replicas_changed;

  std::vector<ClusterEvent> events;  ///< to log and to hand to subscribers in this process
  bool stop_self = false;            ///< everyone has left: the head may end
};

/// Membership and placement of the cluster: who is in, who holds what, in which version.
///
///     session_up -> Greeting;  Join -> Welcome | Refused;  Renew -> Renewed
///     forming --enough devices--> loading --Loaded from all--> ready
///        a member lost --> degraded --enough devices--> loading (next version)
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
  const std::vector<std::string>& lost_parts() const { return lost_parts_; }
  const SupervisorOptions& options() const { return options_; }
  std::optional<Numerics> numerics() const { return numerics_; }
  const std::map<NodeId, Member>& members() const { return members_; }
  const std::deque<Member>& gone() const { return gone_; }  ///< lost ones, newest last
  bool replica_serves() const { return state_ == ClusterState::kReady; }
  /// The version being loaded or served, else the last one.
  const std::optional<Placement>& placement() const { return placement_; }
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

  // supervisor.cpp: sessions and membership
  void on_stranger(std::uint32_t session, const Envelope& envelope, TimePoint now,
                   SupervisorActions& actions);
  void on_member(Member& member, const Envelope& envelope, TimePoint now,
                 SupervisorActions& actions);
  void on_join(std::uint32_t session, const Join& join, TimePoint now, SupervisorActions& actions);
  void on_client(std::uint32_t session, const Envelope& envelope, TimePoint now,
                 SupervisorActions& actions);
  void on_renew(Member& member, const Renew& renew, TimePoint now, SupervisorActions& actions);
  Status check_join(const Join& join) const;
  NodeId choose_id(const Join& join, TimePoint now, SupervisorActions& actions);
  void refuse_session(std::uint32_t session, const Error& error, TimePoint now,
                      SupervisorActions& actions);
  void refuse_message(const Envelope& envelope, std::string reason, SupervisorActions& actions);
  void close(std::uint32_t session, std::string reason, SupervisorActions& actions);
  /// Fences the member. The caller considers a new placement once it is done.
  void remove_member(NodeId id, const std::string& reason, bool orderly, TimePoint now,
                     SupervisorActions& actions);
  void check_leases(TimePoint now, SupervisorActions& actions);
  void check_strangers(TimePoint now, SupervisorActions& actions);
  void wake(SupervisorActions& actions) const;
  Address session_address(std::uint32_t session) const;
  static Address member_address(const Member& member);
  std::optional<Numerics> common_numerics() const;

  // formation.cpp: placement versions
  void consider(TimePoint now, SupervisorActions& actions);
  void plan(TimePoint now, SupervisorActions& actions);
  PlacementInput plan_input() const;
  void send_load(SupervisorActions& actions);
  void activate(TimePoint now, SupervisorActions& actions);
  void abandon(const Error& error, TimePoint now, SupervisorActions& actions);
  void fail_load(const Error& error, TimePoint now, SupervisorActions& actions);
  void on_load_progress(Member& member, const LoadProgress& progress, TimePoint now);
  void on_loaded(Member& member, const Loaded& loaded, TimePoint now, SupervisorActions& actions);
  void on_load_failed(const Member& member, const LoadFailed& failed, TimePoint now,
                      SupervisorActions& actions);
  void check_loads(TimePoint now, SupervisorActions& actions);
  void check_broken_link(TimePoint now, SupervisorActions& actions);
  void finish_stop(TimePoint now, SupervisorActions& actions);
  bool placement_lives() const {
    return state_ == ClusterState::kLoading || state_ == ClusterState::kReady;
  }
  bool uses(NodeId node) const { return used_.contains(node); }
  std::vector<std::string> parts_on(NodeId node) const;
  std::size_t devices_here() const;
  std::string waiting_message() const;
  const FabricToken& token_between(const Member& a, const Member& b);

  SupervisorOptions options_;
  ClusterState state_ = ClusterState::kForming;
  std::string message_;
  std::string trouble_;  ///< why the cluster is degraded
  std::vector<std::string> lost_parts_;
  std::optional<Numerics> numerics_;
  std::uint64_t next_incarnation_;
  std::uint32_t next_node_;
  std::uint64_t next_version_ = 1;
  std::map<std::uint32_t, Session> sessions_;
  std::map<NodeId, Member> members_;
  std::deque<Member> gone_;
  std::optional<Placement> placement_;
  std::set<NodeId> used_;  ///< the nodes of placement_
  /// Drawn once for each pair of lives, so that a connection that stands need not be made anew.
  std::map<std::pair<Incarnation, Incarnation>, FabricToken> tokens_;
  /// A pair of serving members that cannot reach each other. Often one of them is dead and its
  /// session says so in a moment; if not, the version cannot go on.
  struct BrokenLink {
    NodeId reporter, peer;
    Incarnation reporter_life, peer_life;
    std::string reason;
    TimePoint due{};
  };
  std::optional<BrokenLink> broken_link_;
  std::optional<TimePoint> retry_at_;
  Duration retry_backoff_{};
  std::optional<TimePoint> stop_deadline_;
  std::deque<ClusterEvent> events_;
  Counters counters_;
  std::function<std::string(TimePoint)> status_source_;
};

}  // namespace troupe
