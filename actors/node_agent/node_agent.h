#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/node_agent/agent_effects.h"
#include "actors/node_agent/agent_lease.h"
#include "actors/node_agent/agent_term.h"
#include "actors/node_agent/agent_versions.h"
#include "actors/node_agent/agent_voice.h"
#include "actors/node_agent/node_progress.h"
#include "actors/node_agent/peer_links.h"
#include "runtime/limits.h"
#include "runtime/sleep_watch.h"

namespace troupe {

/// Who this worker is; fixed for the life of its process.
struct NodeAgentOptions {
  ProtocolRange protocol = kProtocol;
  std::string version;
  std::string host;
  std::int32_t pid = 0;
  std::string head;  ///< "host:port", as people write it, for messages
  std::vector<Numerics> numerics;
  std::vector<DeviceInventory> devices;
  std::string model_path;         ///< --model; empty: the head's path
  std::uint64_t tier_memory = 0;  ///< host bytes for experts that others serve
  std::uint32_t nccl = 0;  ///< version of the NCCL that its ranks may use; 0: none
  NodeId held_id;  ///< kept from an earlier life; 0: none. Then: of the newest membership
  std::string held_cluster;
};

/// The worker's side of membership: seeks the head, joins, keeps the lease while the devices work,
/// carries out placements (AgentVersions), reaches peers (PeerLinks), holds back what it has to say
/// when its lease has ended, and stops serving when it is not renewed.
///
/// When the head is gone the membership is over, but not the role: what is in force here is kept
/// until a head says with its Welcome that this life goes on, or that another one begins; or until
/// none has come for as long as the last one said. Then it is let go, and the weights with it.
///
///     starting -> seeking -> connecting -> greeting -> inspecting -> joining -> member -> leaving
///                    ^                      |  a standby's greeting: pledged, until it rules
///                    ^_________________________________________________________|           |
///                          lease lost, session down, refused                             ended
///
/// From member or any of those before it, a copy in memory that has changed leads to proving, and
/// that to connecting once all others have been looked at.
///
/// A part of WorkerMachine, which hands it what concerns it, and does what it asks for. Session
/// events are those of the session that the last ConnectHead began: after CloseHead none of an
/// older one comes in.
class NodeAgent {
 public:
  using Inbox = NodeAgentInbox;
  using Effects = AgentEffects;

  enum class State : std::uint8_t {
    kStarting,    ///< before its first wake
    kSeeking,     ///< no session; connects when the pause is over
    kConnecting,  ///< waits for HeadUp
    kGreeting,    ///< waits for the head's Greeting
    kInspecting,  ///< waits for CheckpointInspected
    kPledged,     ///< has granted a standby its term; waits for the session's end
    kProving,     ///< no session; waits until all copies in memory have been looked at
    kJoining,     ///< waits for Welcome or Refused
    kMember,
    kLeaving,  ///< Leave sent; waits for the session's end
    kEnded,
  };

  explicit NodeAgent(NodeAgentOptions options) : options_(std::move(options)) {}

  void on(const Greeting& greeting, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Refused& refused, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Welcome& welcome, const Envelope& envelope, TimePoint now, Effects& effects);
  /// A standby, where a head was sought.
  void on(const Standing& standing, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Renewed& renewed, const Envelope& envelope, TimePoint now, Effects& effects);
  /// The head has no such member: it also closes the session, which says the same.
  void on(const Undeliverable& lost, const Envelope& envelope, TimePoint now, Effects& effects);
  /// What only a member takes, from the head that it is a member of.
  template <class T>
    requires TakesWire<NodeAgentInbox, T>
  void on(const T& message, const Envelope& envelope, TimePoint now, Effects& effects) {
    if (listens(now, effects) && for_member(envelope, effects)) take(message, envelope, effects);
  }

  void on(const HeadUp& up, TimePoint now, Effects& effects);
  void on(const HeadDown& down, TimePoint now, Effects& effects);
  void on(const LeaveCluster& leave, TimePoint now, Effects& effects);
  void on(const CheckpointInspected& inspected, TimePoint now, Effects& effects);
  void on(const PeerUp& up, TimePoint now, Effects& effects);
  void on(const PeerDown& down, TimePoint now, Effects& effects);
  void on(const PeerCorrupt& peer, TimePoint now, Effects& effects);

  void on(LinkResult result, TimePoint, Effects& effects) {
    links_.measuring().result(std::move(result), voice_, effects);
  }

  void on_wake(TimePoint now, const NodeProgress& progress, Effects& effects);
  /// Asks for the next wake-up.
  void end_turn(TimePoint now, Effects& effects) const;
  std::optional<TimePoint> next_wake() const;
  /// When all that is kept without a head is let go, unless one comes.
  std::optional<TimePoint> lets_go_at() const;

  // What WorkerMachine has to say of the weights and the versions.
  void holds(HeldInventory held) { held_ = std::move(held); }
  void load_progress(const LoadProgress& progress, TimePoint now, Effects& effects);
  void loaded(PlacementVersion version, TimePoint now, Effects& effects);
  void load_failed(PlacementVersion version, Error error, TimePoint now, Effects& effects);
  /// No question by routes older than those of that version is open on this node.
  void settled(PlacementVersion version, TimePoint now, Effects& effects);
  /// What tensors were when they were read.
  void proofs(TensorProofs proofs, TimePoint now, Effects& effects);
  /// A copy in memory has changed: nothing here serves before all have been looked at.
  void copy_differs(const ProofFailed& proof, TimePoint now, Effects& effects);
  void copies_proven(TimePoint now, Effects& effects);
  /// A device has failed: the head hears of it at once.
  void devices_changed(TimePoint now, const NodeProgress& progress, Effects& effects);

  const NodeAgentOptions& options() const { return options_; }
  State state() const { return state_; }
  /// It is no member, and keeps what it served as one.
  bool suspended() const { return versions_.suspended().has_value(); }
  NodeId id() const { return voice_.id; }
  Incarnation incarnation() const { return voice_.incarnation; }
  /// The life of the head that greeted this worker last.
  Incarnation head() const { return voice_.head; }
  /// The checkpoint's folder; empty before the head's first greeting.
  const std::string& model_path() const { return model_path_; }
  /// The version that this node serves now, if any.
  std::optional<PlacementVersion> active() const { return versions_.active(); }
  /// The version that it has to load and has not reported yet, if any.
  std::optional<PlacementVersion> loading() const { return versions_.loading(); }
  /// When the lease ends unless renewed; only as a member.
  TimePoint lease_end() const { return lease_.end(); }
  std::uint64_t refused_messages() const { return voice_.refused_messages(); }
  std::string violation() const;

 private:
  bool keep_lease(TimePoint now, Effects& effects);
  bool listens(TimePoint now, Effects& effects);
  bool from_head(const Envelope& envelope, Effects& effects);
  bool for_member(const Envelope& envelope, Effects& effects);
  void take(const Load& load, const Envelope& envelope, Effects& effects);
  void take(const Activate& activate, const Envelope& envelope, Effects& effects);
  void take(const Retire& retire, const Envelope& envelope, Effects& effects);
  void take(const MemberLost& lost, const Envelope& envelope, Effects& effects);
  void take(const Connect& connect, const Envelope& envelope, Effects& effects);
  void take(const Avoid& avoid, const Envelope& envelope, Effects& effects);
  void take(const Prove& prove, const Envelope& envelope, Effects& effects);
  void take(const Discard& discard, const Envelope& envelope, Effects& effects);
  void take(const Successor& successor, const Envelope& envelope, Effects& effects);
  void take(const Stop& stop, const Envelope& envelope, Effects& effects);
  void take(const MeasureLink& order, const Envelope&, Effects& effects) {
    links_.measure(order, voice_, effects);
  }
  void take(const EndMeasure& end, const Envelope&, Effects& effects) {
    links_.measuring().end(end, effects);
  }

  void enter(State state, Duration deadline, TimePoint now);
  void connect(TimePoint now, Effects& effects);
  void seek(const std::string& reason, TimePoint now, Effects& effects);
  void inspect(TimePoint now, Effects& effects);
  void join(TimePoint now, Effects& effects);
  void begin_role(const WorkerLife& life, Effects& effects);
  void suspend_role(Effects& effects);
  void stop_role(Effects& effects);
  void let_go(Effects& effects);
  void leave(const WorkerLife& life, Effects& effects);
  void end(int code, std::string reason, Effects& effects);
  void give_up(const std::string& reason, Effects& effects);
  void renew(TimePoint now, const NodeProgress& progress, Effects& effects);

  NodeAgentOptions options_;
  State state_ = State::kStarting;
  TimePoint deadline_{};  // of the state; when seeking: the next try
  Duration backoff_ = limits::kSeekBackoffMin;
  AgentVoice voice_;

  Greeting greeting_;
  std::string model_path_;
  std::string checkpoint_hash_;  // of model_path_; empty: not known
  std::string inspecting_;       // the folder that is being inspected; empty: none
  HeldInventory held_;

  AgentTerm term_;
  AgentLease lease_;
  SleepWatch sleep_;
  PeerLinks links_;
  AgentVersions versions_;
};

}  // namespace troupe
