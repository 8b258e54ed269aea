#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/machine.h"
#include "runtime/limits.h"

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
  std::string model_path;  ///< --model; empty: the head's path
  std::string fabric_address;
  std::string fabric_description;
  NodeId held_id;  ///< kept from an earlier life; 0: none
  std::string held_cluster;
};

/// What the devices and replicas of this node do now. The shell takes it when it wakes the machine.
struct NodeProgress {
  bool devices_alive = true;  ///< every compute thread is idle or moved on since the last snapshot
  std::vector<DeviceReport> devices;
  std::vector<ReplicaReport> replicas;
  std::uint64_t held_weight_bytes = 0;
};

/// What a worker's shell has to do, in the order of the fields; `sends` come after `joined` and
/// before `close_session`. Messages to the head go on the current session.
struct NodeAgentActions : Actions {
  /// Serve no more: replicas, shards and groups of every version stop; weights stay in memory.
  bool stop_serving = false;
  /// A version is taken back: as stop_serving, for that version alone.
  std::optional<PlacementVersion> deactivate;

  /// From now on this node's own address is (id, incarnation).
  struct Joined {
    NodeId id;
    Incarnation incarnation;
    std::string cluster_id;
  };
  std::optional<Joined> joined;

  /// Compute the hash of the checkpoint in that folder, then call checkpoint_inspected().
  std::optional<std::string> inspect_checkpoint;

  std::vector<Peer> forget_peers;   ///< close their bulk connections
  std::vector<Peer> expect_peers;   ///< they will come: accept their token
  std::vector<Peer> connect_peers;  ///< go to them; then peer_up() or peer_down()

  /// This node's part of a placement: load what is not held yet, drop what is no longer placed
  /// here, then call loaded() or load_failed(), and load_progress() meanwhile.
  struct Work {
    PlacementVersion version;
    Placement placement;  ///< whole: routing needs it
    EngineOptions engine;
    std::string model_path;
    std::vector<Peer> peers;  ///< of this placement, with incarnations
    std::vector<ShardPlacement> shards;
    std::vector<ReplicaPlacement> replicas;
    std::vector<LayerExperts> experts;  ///< slots of this node's devices only
  };
  std::optional<Work> load;
  /// Every member has loaded it: requests may come from now on. This node's actors have been up
  /// since its part was loaded.
  std::optional<PlacementVersion> activate;

  bool close_session = false;
  bool connect_head = false;     ///< then session_up(), or session_down() with the reason
  std::vector<std::string> log;  ///< for people: what it waits for, why it changed its mind

  /// The process ends, after what was sent has left.
  struct Exit {
    int code = 0;
    std::string reason;
  };
  std::optional<Exit> exit;
};

/// The worker's side of membership: seeks the head, joins, keeps the lease while the devices work,
/// carries out placements, and stops serving when its lease ends.
///
///     seeking -> greeting -> inspecting -> joining -> member -> (leaving) -> ended
///        ^______________________________________________|  lease over, session down, refused
///
/// Every call may be made at any time and asks for the next on_wake. Session events are those of
/// the session that the last `connect_head` began: after `close_session` none of an older one comes
/// in.
class NodeAgent {
 public:
  enum class State : std::uint8_t {
    kSeeking,     ///< no session; connects at `next`
    kConnecting,  ///< waits for session_up
    kGreeting,    ///< waits for the head's Greeting
    kInspecting,  ///< waits for checkpoint_inspected
    kJoining,     ///< waits for Welcome or Refused
    kMember,
    kLeaving,  ///< Leave sent; waits for the session's end
    kEnded,
  };

  explicit NodeAgent(NodeAgentOptions options) : options_(std::move(options)) {}

  void start(TimePoint now, NodeAgentActions& actions);
  void session_up(TimePoint now, NodeAgentActions& actions);
  /// `foreign`: the certificates do not belong together; no retry will help.
  void session_down(std::string_view reason, bool foreign, TimePoint now,
                    NodeAgentActions& actions);
  void on(const Envelope& envelope, TimePoint now, NodeAgentActions& actions);
  void on_wake(TimePoint now, const NodeProgress& progress, NodeAgentActions& actions);
  /// The hash, or why there is none.
  void checkpoint_inspected(const Result<std::string>& hash, TimePoint now,
                            NodeAgentActions& actions);
  void load_progress(const LoadProgress& progress, TimePoint now, NodeAgentActions& actions);
  void loaded(PlacementVersion version, TimePoint now, NodeAgentActions& actions);
  void load_failed(PlacementVersion version, Error error, TimePoint now, NodeAgentActions& actions);
  void peer_up(NodeId peer, Incarnation incarnation, TimePoint now, NodeAgentActions& actions);
  void peer_down(NodeId peer, Incarnation incarnation, std::string_view reason, TimePoint now,
                 NodeAgentActions& actions);
  /// SIGTERM, Ctrl-C: leave in order.
  void leave(std::string_view reason, TimePoint now, NodeAgentActions& actions);

  State state() const { return state_; }
  NodeId id() const { return id_; }
  Incarnation incarnation() const { return incarnation_; }
  /// The version that this node serves now, if any.
  std::optional<PlacementVersion> active() const { return active_; }
  /// The version that it is told to load and has not reported yet, if any.
  std::optional<PlacementVersion> loading() const { return loading_; }
  /// When the lease ends unless renewed; only as a member.
  TimePoint lease_end() const { return lease_end_; }
  std::uint64_t refused_messages() const { return refused_messages_; }

 private:
  struct PeerState {
    Peer peer;
    bool up = false;
  };

  bool keep_lease(TimePoint now, NodeAgentActions& actions);
  void connect(TimePoint now, NodeAgentActions& actions);
  void seek(const std::string& reason, TimePoint now, NodeAgentActions& actions);
  void stop_role(NodeAgentActions& actions);
  void end(int code, std::string reason, NodeAgentActions& actions);
  void give_up(const std::string& reason, NodeAgentActions& actions);
  void say(std::string text, NodeAgentActions& actions);
  void enter(State state, Duration deadline, TimePoint now);
  void on_greeting(const Envelope& envelope, TimePoint now, NodeAgentActions& actions);
  void inspect(TimePoint now, NodeAgentActions& actions);
  void join(TimePoint now, NodeAgentActions& actions);
  void on_welcome(const Welcome& welcome, TimePoint now, NodeAgentActions& actions);
  void on_refused(const Refused& refused, TimePoint now, NodeAgentActions& actions);
  void on_member_message(const Envelope& envelope, NodeAgentActions& actions);
  void on_renewed(const Renewed& renewed);
  void on_load(const Load& load, NodeAgentActions& actions);
  void on_activate(const Envelope& envelope, PlacementVersion version, NodeAgentActions& actions);
  void on_deactivate(PlacementVersion version, NodeAgentActions& actions);
  void take_peers(const std::vector<Peer>& peers, NodeAgentActions& actions);
  Status check_load(const Load& load) const;
  void fail_load(Error error, NodeAgentActions& actions);
  void renew(TimePoint now, const NodeProgress& progress, NodeAgentActions& actions);
  void report_if_loaded(NodeAgentActions& actions);
  void refuse(const Envelope& envelope, std::string reason, NodeAgentActions& actions);
  void wake(NodeAgentActions& actions) const;
  Address head_address() const;

  NodeAgentOptions options_;
  State state_ = State::kSeeking;
  TimePoint deadline_{};  // of the state; when seeking: the next try
  Duration backoff_ = limits::kSeekBackoffMin;
  std::string said_;  // the last log line about waiting: not repeated

  Incarnation head_incarnation_;
  Greeting greeting_;
  std::string model_path_;
  std::string checkpoint_hash_;  // of model_path_; empty: not known
  std::uint64_t held_weight_bytes_ = 0;

  NodeId id_;
  Incarnation incarnation_;
  TimePoint joined_at_{};
  TimePoint lease_end_{};
  Duration lease_{};
  TimePoint next_renew_{};
  bool stuck_said_ = false;
  std::uint64_t renew_sequence_ = 0;
  std::map<std::uint64_t, TimePoint> renews_;  // sent and not answered; at most kRenewsMax

  std::map<NodeId, PeerState> peers_;
  std::optional<PlacementVersion> loading_;
  bool weights_loaded_ = false;
  std::optional<PlacementVersion> loaded_;
  std::optional<PlacementVersion> active_;
  PlacementVersion newest_;  // of all versions that this membership was told of
  std::uint64_t refused_messages_ = 0;
};

}  // namespace troupe
