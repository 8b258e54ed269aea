#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "actors/supervisor/network_bench.h"
#include "actors/supervisor/placement_lifecycle.h"
#include "actors/supervisor/standby_link.h"
#include "runtime/sleep_watch.h"

namespace troupe {

/// Membership and placement of the cluster: who is in, who holds what, in which version.
///
///     SessionUp -> Greeting;  Join -> Welcome | Refused;  Renew -> Renewed
///
/// One actor and one turn, made of parts: this class finds out who speaks, and lets the parts
/// decide. A part is only changed by those that stand above it here:
///
///     Supervisor
///       └─► PlacementLifecycle ─► Operations
///             │    └─► PlacementVersions, PlacementGoal, ExpertBalance, ServiceState
///             └─► Membership, Links, Sessions
///       ├─► NetworkBench
///       └─► StandbyLink
class Supervisor {
 public:
  using Inbox = SupervisorInbox;
  using Effects = SupervisorEffects;

  explicit Supervisor(SupervisorOptions options);

  // From workers, before they are members and as members.
  void on(const Join& join, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Leave& leave, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Renew& renew, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const LoadProgress& progress, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Loaded& loaded, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const LoadFailed& failed, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Activated& activated, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const ExpertCounts& counts, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const PeerUnreachable& report, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const TensorProofs& proofs, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const ProofFailed& failed, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const CanaryResult& result, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const SuccessorKnown& known, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const LinkMeasured& measured, const Envelope& envelope, TimePoint now, Effects& effects);
  // From a standby.
  void on(const Follow& follow, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Followed& followed, const Envelope& envelope, TimePoint now, Effects& effects);
  // From programs.
  void on(const ClientHello& hello, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const StatusQuery& query, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const StopQuery& query, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const DrainQuery& query, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const RebalanceQuery& query, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const NetworkQuery& query, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Subscribe&, const Envelope& envelope, TimePoint now, Effects& effects);
  /// Fences that life if it is a member still: its sockets live on while its memory is written to a
  /// file. OperationProgress says that it is known.
  void on(const CrashReport& report, const Envelope& envelope, TimePoint now, Effects& effects);
  /// A member that it was for is lost by its session or its lease; nothing waits for this alone.
  void on(const Undeliverable&, const Envelope&, TimePoint, Effects&) {}
  // From this process.
  void on(SessionUp up, TimePoint now, Effects& effects);
  void on(SessionDown down, TimePoint now, Effects& effects);
  void on(NoteEvent note, TimePoint now, Effects& effects);
  void on(Listening listening, TimePoint now, Effects& effects);
  void on(StopCluster stop, TimePoint now, Effects& effects);
  void on(StatusWanted wanted, TimePoint now, Effects& effects);
  void on(TensorsRead read, TimePoint now, Effects& effects);
  void on(CopyComplete complete, TimePoint now, Effects& effects);
  void on(StandbyKept kept, TimePoint now, Effects& effects);
  void on(CopyBroken broken, TimePoint now, Effects& effects);
  void on(StandbyAnswered answer, TimePoint now, Effects& effects);

  void on_wake(TimePoint now, Effects& effects);
  void end_turn(TimePoint now, Effects& effects);
  std::string violation() const;

  // What the status is made of.
  ClusterState state() const { return placement_.service().state(); }
  const std::string& message() const { return placement_.service().message(); }
  const std::optional<Error>& trouble() const { return placement_.service().trouble(); }
  const SupervisorOptions& options() const { return options_; }
  std::optional<Numerics> numerics() const { return members_.numerics(); }
  const std::map<NodeId, Member>& members() const { return members_.all(); }
  const std::deque<Member>& gone() const { return members_.gone(); }  ///< lost ones, newest last
  /// In force, as far as it lives: null before the first.
  const Placement* active() const { return placement_.versions().active(); }
  /// Being loaded, null if none is.
  const Placement* pending() const { return placement_.versions().pending(); }
  /// The one in force, else the one being loaded.
  const Placement* placement() const { return active() ? active() : pending(); }
  const ExpertLoad& expert_load() const { return placement_.balance().load(); }
  /// Copies of experts that the goal has and the version in force lacks.
  std::size_t moves_pending() const { return placement_.moves_pending(); }
  std::optional<TimePoint> last_rebalance() const { return placement_.balance().last(); }
  Survival survival() const { return placement_.survival(options_, members_, links_); }
  bool slow(const DeviceRef& device) const { return members_.speeds().slow(device); }
  bool proven(std::uint32_t replica) const { return placement_.proven(replica); }
  const LinkRecord& measured_links() const { return network_.record(); }
  const Proofs& proofs() const { return placement_.proofs(); }
  const std::deque<ClusterEvent>& events() const { return sessions_.events(); }
  const StandbyLink& standby() const { return standby_; }
  const SupervisorCounters& counters() const { return counters_; }
  Ref<SupervisorInbox> address() const { return {kHeadNode, options_.incarnation}; }

 private:
  SupervisorTurn turn_of(TimePoint now, Effects& effects);

  // Who speaks; anyone else is answered, and null comes back.
  struct Sender {
    enum class Kind : std::uint8_t {
      kNobody,
      kStranger,
      kClient,
      kStandby,
      kMember
    } kind = Kind::kNobody;
    std::uint32_t session = 0;
    Member* member = nullptr;
  };
  Sender sender_of(const Envelope& envelope, SupervisorTurn& turn);
  Sender session_of(const Envelope& envelope, SupervisorTurn& turn);
  bool is(Sender::Kind kind, const Sender& sender, const Envelope& envelope, SupervisorTurn& turn);
  Member* member_of(const Envelope& envelope, SupervisorTurn& turn);
  std::optional<std::uint32_t> client_of(const Envelope& envelope, SupervisorTurn& turn);
  void refuse_session(std::uint32_t session, const Error& error, SupervisorTurn& turn);
  void refuse_message(const Envelope& envelope, std::string reason, SupervisorTurn& turn);

  void let_in(std::uint32_t session, const Join& join, SupervisorTurn& turn);
  void check_speed(SupervisorTurn& turn);
  void device_failed(const Member& member, const std::set<std::uint32_t>& failed,
                     SupervisorTurn& turn);
  void take_out(const std::vector<Verdict>& wrong, SupervisorTurn& turn);
  void fence_one_of(const Member& reporter, const Member& peer, const PeerUnreachable& report,
                    SupervisorTurn& turn);
  void check_leases(SupervisorTurn& turn);
  std::string fence(NodeId id, const std::string& why_gone, bool orderly, SupervisorTurn& turn);
  void remove(NodeId id, const std::string& why_gone, bool orderly, SupervisorTurn& turn);

  void stop(const std::string& reason, SupervisorTurn& turn);
  void end_if_all_left(SupervisorTurn& turn);

  SupervisorOptions options_;
  Sessions sessions_;
  Membership members_;
  Links links_;
  PlacementLifecycle placement_;
  NetworkBench network_;
  StandbyLink standby_;
  SupervisorCounters counters_;
  SleepWatch sleep_;
  std::optional<TimePoint> stop_deadline_;  ///< while it waits for members to leave
};

}  // namespace troupe
