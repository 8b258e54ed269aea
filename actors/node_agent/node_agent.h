#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
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
  std::uint64_t tier_memory = 0;  ///< host bytes for experts that others serve
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
  /// What the weights in memory are; wanted while this node is no member.
  std::vector<LayerRange> held_shards;
  std::vector<HeldExperts> held_experts;
  /// Rows that the gates sent to experts since it was last given; the shell gives it about once a
  /// second.
  std::vector<ExpertCounts::Layer> counts;
};

/// What a worker's shell has to do, in the order of the fields; `sends` come after `joined` and
/// before `close_session`. Messages to the head go on the current session.
struct NodeAgentActions : Actions {
  /// Serve no more: replicas, shards and groups of every version stop; weights stay in memory.
  bool stop_serving = false;

  /// From now on this node's own address is (id, incarnation).
  struct Joined {
    NodeId id;
    Incarnation incarnation;
    std::string cluster_id;
  };
  std::optional<Joined> joined;

  /// Compute the hash of the checkpoint in that folder, then call checkpoint_inspected().
  std::optional<std::string> inspect_checkpoint;

  /// Those lives are over: the bulk lane lets nothing of them in any more.
  std::vector<Peer> fence_peers;
  std::vector<Peer> forget_peers;   ///< close their bulk connections
  std::vector<Peer> expect_peers;   ///< they will come: accept their token
  std::vector<Peer> connect_peers;  ///< go to them; then peer_up() or peer_down()

  std::vector<Peer> pings;          ///< to their NodeAgents, on the bulk lane

  std::vector<NodeId> peers_down;  ///< shards are to ask others
  std::vector<NodeId> peers_up;    ///< shards may ask them

  /// A life is over: shards ask others, and replicas that had a shard there end, with all of their
  /// shards here.
  struct Lost {
    NodeId node;
    Incarnation incarnation;
  };
  std::vector<Lost> lost;
  std::optional<std::set<DeviceRef>> avoid;  ///< all devices to ask only if nobody else can

  /// This version will never serve: what was started for it alone ends.
  std::optional<PlacementVersion> drop;
  /// This node's part of a placement: load what is not held yet and start what does not live yet,
  /// beside everything that serves; then call loaded() or load_failed(), and load_progress()
  /// meanwhile. It takes the place of every version that is not active.
  struct Work {
    PlacementVersion version;
    Placement placement;  ///< whole: routing needs it
    EngineOptions engine;
    std::string model_path;
    std::string checkpoint_hash;
    std::vector<Peer> peers;  ///< of this placement, with incarnations
    std::vector<ShardPlacement> shards;
    std::vector<ReplicaPlacement> replicas;
    std::vector<LayerExperts> experts;  ///< slots of this node's devices only
    std::vector<LayerExperts> tier;     ///< to keep in host memory; slots of this node only
  };
  std::optional<Work> load;
  /// Every member has loaded it: shards take its routes, replicas and shards that it lacks end;
  /// then call settled().
  std::optional<PlacementVersion> activate;
  /// Nobody uses what is older: let go of what this version does not give.
  std::optional<PlacementVersion> retire;

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
/// Versions of the placement coexist: the active one serves while the pending one is loaded.
///
///     Load ─► pending ─ weights, actors and peers there ─► Loaded
///     Activate ─► active ─ no question by older routes is open ─► Activated
///     Retire ─► what it does not give goes
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
  /// No question by routes older than those of that version is open on this node.
  void settled(PlacementVersion version, TimePoint now, NodeAgentActions& actions);
  /// A device has failed: the head is told at once.
  void devices_changed(TimePoint now, const NodeProgress& progress, NodeAgentActions& actions);
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
  std::optional<PlacementVersion> loading() const {
    if (!pending_ || pending_->reported) return std::nullopt;
    return pending_->version;
  }
  /// When the lease ends unless renewed; only as a member.
  TimePoint lease_end() const { return lease_end_; }
  std::uint64_t refused_messages() const { return refused_messages_; }

 private:
  enum class Reach : std::uint8_t { kTrying, kUp, kDown };
  struct PeerState {
    Peer peer;
    Reach reach = Reach::kTrying;
    bool anew = false;  ///< the head had both connect anew
    /// Its newest ping while it is up; while they connect anew, since when.
    TimePoint heard{};
  };
  using Lives = std::map<NodeId, Incarnation>;
  /// The version that is being loaded, or has been and waits for its activation.
  struct Pending {
    PlacementVersion version;
    Lives peers;
    bool here = false;      ///< weights and actors are
    bool reported = false;  ///< as Loaded
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
  void renew(TimePoint now, const NodeProgress& progress, NodeAgentActions& actions);
  void refuse(const Envelope& envelope, std::string reason, NodeAgentActions& actions);
  void wake(NodeAgentActions& actions) const;
  Address head_address() const;

  // node_agent_versions.cpp: versions of the placement and their peers
  bool on_version_message(const Envelope& envelope, NodeAgentActions& actions);
  void on_load(const Load& load, NodeAgentActions& actions);
  void on_activate(const Envelope& envelope, PlacementVersion version, NodeAgentActions& actions);
  void on_retire(const Envelope& envelope, PlacementVersion version, NodeAgentActions& actions);
  void on_member_lost(const MemberLost& lost, NodeAgentActions& actions);
  void on_connect(const Peer& peer, NodeAgentActions& actions);
  void take_peers(const std::vector<Peer>& peers, NodeAgentActions& actions);
  void reach(const Peer& peer, NodeAgentActions& actions);
  void ping_peers(TimePoint now, NodeAgentActions& actions);
  void break_link(PeerState& state, std::string_view reason, NodeAgentActions& actions);
  /// Ends the connection to a peer whose life goes on.
  void let_go(const PeerState& state, NodeAgentActions& actions);
  void lose(const Peer& peer, NodeAgentActions& actions);
  Status check_load(const Load& load) const;
  NodeAgentActions::Work work_of(const Load& load) const;
  void fail_load(Error error, NodeAgentActions& actions);
  void report_if_loaded(NodeAgentActions& actions);

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
  std::vector<LayerRange> held_shards_;
  std::vector<HeldExperts> held_experts_;

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
  std::optional<Pending> pending_;
  std::optional<PlacementVersion> active_;
  Lives active_peers_;
  PlacementVersion newest_;  // of all versions that this membership was told of
  std::uint64_t refused_messages_ = 0;
};

}  // namespace troupe
