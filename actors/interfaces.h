#pragma once

#include <cstdint>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/base/inbox.h"

/// Who takes what: every actor's inbox, one sentence a message. `Wire` messages are those of
/// transport/message.h and may come from another node. `Local` messages are made in this process
/// only. What an actor's own jobs tell it is declared in its folder; what one actor tells another
/// is defined here, so that no folder needs the other.
namespace troupe {

class ExpertRoutes;

// --- What actors of one process tell each other -------------------------------------------------

/// A life of a peer cannot be reached any more.
struct PeerDown {
  NodeId node;
  Incarnation incarnation;
  std::string reason;
  LinkFault fault = LinkFault::kBroke;
};
/// The head's life with the Router and the Supervisor is over; another one takes its place, or none
/// yet. Nobody wants what they have asked for.
struct HeadChanged {
  std::optional<Incarnation> head;
};
/// A life of a peer can be reached (again).
struct PeerUp {
  NodeId node;
  Incarnation incarnation;
};

/// LayerShard -> NodeAgent: what that life of a peer sent here does not fit what it was asked. It
/// costs the connection.
struct PeerCorrupt {
  NodeId node;
  Incarnation incarnation;
  std::string reason;
};

/// Worker -> LayerShard: later questions follow these routes; RoutesSettled comes back.
struct RoutesChanged {
  std::shared_ptr<const ExpertRoutes> routes;
  std::map<NodeId, Incarnation> members;  ///< of the placement, this node included
};
/// Worker -> LayerShard: ask these devices only if nobody else has the expert; no others.
struct DevicesAvoided {
  std::set<DeviceRef> devices;
};
/// LayerShard -> NodeAgent: no question of this shard by older routes than that version's is open.
struct RoutesSettled {
  std::uint32_t shard = 0;  ///< its index
  PlacementVersion version;
};

/// A replica that takes sequences.
struct ReplicaEndpoint {
  std::uint32_t id = 0;
  Address address;
  bool slow = false;  ///< gets new sequences only if no other one serves
  /// What its KV cache holds.
  std::uint64_t cache_tokens = std::numeric_limits<std::uint64_t>::max();
  bool operator==(const ReplicaEndpoint&) const = default;
};
/// Supervisor -> Router: these replicas serve from now on, and no others.
struct ReplicasChanged {
  PlacementVersion version;
  std::vector<ReplicaEndpoint> replicas;
};
/// Supervisor -> Router: a life of a node is over, said before what it took with it.
struct LifeLost {
  Incarnation life;
  std::vector<std::uint32_t> replicas;  ///< that had a shard there, or may have asked its experts
};
/// Supervisor -> Router: that life ended itself by a crash, as its process left word; comes after
/// its LifeLost. `why` names it.
struct LifeCrashed {
  Incarnation life;
  std::string why;
};
/// Supervisor -> Router: the node of these replicas is gone; `why` names it.
struct ReplicasLost {
  std::vector<std::uint32_t> replicas;
  std::string why;
};
/// Supervisor -> Router: these were told to find nothing again that they computed so far.
struct PrefixesForgotten {
  std::vector<std::uint32_t> replicas;
};
/// Supervisor -> Router: whether new requests may wait although no replica can take them.
struct AdmissionChanged {
  bool waits = false;
  std::string why;  ///< what a request is told that may not wait
  bool operator==(const AdmissionChanged&) const = default;
};
/// Supervisor -> Router: nothing is answered any more.
struct RequestsEnd {
  std::string why;
};

/// Supervisor -> Router: a standby follows by that session: the journal goes there, too, from a new
/// file on. CopyComplete or CopyBroken follows.
struct CopyJournal {
  std::uint32_t session = 0;
};
/// Supervisor -> Router: what has come up to that mark outlives the head there.
struct JournalCopied {
  std::uint64_t mark = 0;
};
/// Supervisor -> Router: nobody may take over with the copy; nothing waits for it any more.
struct CopyNoMore {};
/// Router -> Supervisor: the copy has all that was accepted, and from now on nothing of a request
/// leaves before it has that, too.
struct CopyComplete {
  std::uint32_t session = 0;
};
/// Router -> Supervisor: the copy is not what it should be.
struct CopyBroken {
  std::uint32_t session = 0;
  std::string reason;  ///< a sentence
};

// router/messages.h
struct SubmitRequest;
struct AttachReader;
struct FindRequests;
struct JournalKept;
struct JournalFailed;
/// A door -> Router: that reader of the request went away.
struct CancelRequest {
  std::uint64_t request = 0;
  std::uint64_t ticket = 0;  ///< the reader's; 0: nobody wants the request any more
};

/// Lane -> Supervisor: an authenticated connection; `peer` says where from, for people.
struct SessionUp {
  std::uint32_t session = 0;
  std::string peer;
  std::string certificate = {};  ///< the name of the one that it has shown
};
/// Lane -> Supervisor: a session has ended.
struct SessionDown {
  std::uint32_t session = 0;
  std::string reason;
};
/// The program -> Supervisor: the head listens; `join_line` is what to run on a worker.
struct Listening {
  std::string join_line;
};
/// The program -> Supervisor: end the cluster in order.
struct StopCluster {
  std::string reason;
};
/// The head's hands -> Supervisor: what is where its standby listened.
struct StandbyAnswered {
  bool rules = false;  ///< it has become the head; else it has given up what it could do so with
};
/// The head's hands -> Supervisor: the next life will ask that standby first, or why it would not.
struct StandbyKept {
  std::uint32_t session = 0;
  std::optional<Error> error;
};
/// The program -> Supervisor: something to tell people.
struct NoteEvent {
  std::string kind;
  std::string text;
};
/// A door -> Supervisor: the JSON of `troupe status --json` is wanted.
struct StatusWanted {
  std::shared_ptr<std::promise<std::string>> reply;
};

/// Where a worker's bulk lane is, for its Join.
struct BulkPlace {
  std::string address = "none";
  std::string description = "none: a cluster of one node";
  FabricPort port = {};
};
/// Lane -> NodeAgent: the session that it asked for is up. By its way others find the bulk lane.
struct HeadUp {
  BulkPlace bulk = {};
  std::string head = {};  ///< "host:port" where it was found, for messages
};
/// Lane -> NodeAgent: the session ended, or never began.
struct HeadDown {
  std::string reason;
  bool foreign = false;  ///< the certificates do not belong together; no retry will help
};
/// The program -> NodeAgent: leave the cluster in order.
struct LeaveCluster {
  std::string reason;
};
/// LinkMeter -> NodeAgent: what came of the newest measurement.
struct LinkResult {
  LinkMeasured measured;
};
/// Device -> NodeAgent: a device of this node computes no more.
struct DeviceFailed {
  std::uint32_t device = 0;
};

/// The head's hands -> Supervisor: tensors of its own checkpoint, as they are now.
struct TensorsRead {
  std::uint64_t reading = 0;  ///< as it was asked
  bool fresh = false;
  std::vector<TensorProof> tensors;
  std::uint64_t bytes = 0;     ///< of these tensors
  std::optional<Error> error;  ///< why the rest could not be read
  std::vector<std::string> unread = {};  ///< which
  bool reopened = false;                 ///< its files have changed since the head opened them
};

struct CheckpointInspected;  // node_agent/messages.h: what its jobs tell it
struct PieceRead;
struct FilesChanged;
struct PartRead;
struct ProofsRead;
struct CopyDiffers;
struct CopiesProven;
struct PartBuilt;
struct StepCut;  // layer_shard/messages.h
struct StepFound;
struct StepComputed;
struct PassEnded;  // expert_group/expert_pass.h

// --- Inboxes ------------------------------------------------------------------------------------

/// Membership and placement of the cluster; on the head.
struct SupervisorInbox {
  static constexpr ActorKind kKind = ActorKind::kSupervisor;
  using wire = Wire<Join,             // a worker wants to become a member
                    Renew,            // a member's devices made progress: its lease begins again
                    Leave,            // a member, or a worker that does not belong here, goes
                    LoadProgress,     // bytes of a version that a member has read
                    Loaded,           // a member has all of its part of a version
                    LoadFailed,       // a member cannot load its part, and why
                    Activated,        // nothing on a member waits by older routes
                    TensorProofs,     // what a member read of the weights
                    ProofFailed,      // a copy in a member's memory is not what it was
                    CanaryResult,     // what a replica computed of the canary
                    ExpertCounts,     // rows that a member's gates sent to each expert
                    PeerUnreachable,  // a member cannot reach another one
                    ClientHello,      // a program wants to ask
                    StatusQuery,      // a program wants the status
                    StopQuery,        // a program ends the cluster
                    DrainQuery,       // a program wants a node to move everything off and leave
                    RebalanceQuery,   // a program wants the experts' load evened out now
                    Subscribe,        // a program wants to hear cluster events
                    NetworkQuery,     // a program wants links between members measured
                    LinkMeasured,     // what came of one of them
                    CrashReport,      // what a worker that crashes leaves behind
                    Follow,           // a standby wants to follow
                    Followed,         // what it has; it is alive
                    SuccessorKnown,   // a member knows who may take over
                    Undeliverable>;   // ignored: the receiver is lost by session or lease
  using local = Local<SessionUp, SessionDown, Listening, StopCluster, NoteEvent, StatusWanted,
                      TensorsRead, CopyComplete, CopyBroken, StandbyAnswered, StandbyKept>;
};

/// Every accepted request until it ends; on the head.
struct RouterInbox {
  static constexpr ActorKind kKind = ActorKind::kRouter;
  using wire = Wire<SequenceEvents,  // what a replica's step did to its sequences
                    Undeliverable>;  // a Submit did not reach its replica
  using local =
      Local<SubmitRequest, AttachReader, FindRequests, CancelRequest, JournalKept, JournalFailed,
            ReplicasChanged, LifeLost, LifeCrashed, ReplicasLost, PrefixesForgotten,
            AdmissionChanged, RequestsEnd, CopyJournal, JournalCopied, CopyNoMore>;
};

/// A worker: its membership, what it serves, its weights. One a node.
struct NodeAgentInbox {
  static constexpr ActorKind kKind = ActorKind::kNodeAgent;
  using wire = Wire<Greeting,        // what cluster this is
                    Refused,         // the head does not take this worker, and why
                    Welcome,         // it is a member now: its id, life and lease
                    Renewed,         // the lease begins again from when that Renew was sent
                    Load,            // hold what this version gives, beside what serves
                    Activate,        // every member has loaded that version: follow its routes
                    Retire,          // nobody uses an older one: let go of what it alone gave
                    MemberLost,      // a life of a node is over, whatever its sockets say
                    Connect,         // connect to that peer again: the old connection broke
                    Avoid,           // devices to ask only if nobody else can
                    Prove,           // read these tensors again, past the page cache
                    Discard,         // what it read of these tensors may be wrong
                    Stop,            // end in order
                    Successor,       // who may take over when the head is gone
                    Standing,        // a standby, where a head was sought
                    MeasureLink,     // measure the connection to that peer
                    EndMeasure,      // nobody wants that any more
                    Undeliverable>;  // the head has no such member
  using local = Local<HeadUp, HeadDown, LeaveCluster, DeviceFailed, PeerUp, PeerDown, PeerCorrupt,
                      RoutesSettled, CheckpointInspected, FilesChanged, PieceRead, PartRead,
                      PartBuilt, ProofsRead, CopyDiffers, CopiesProven, LinkResult, Ended>;
};

/// The scheduler of one data-parallel replica.
struct ReplicaInbox {
  static constexpr ActorKind kKind = ActorKind::kReplica;
  using wire = Wire<Submit,          // generate this sequence
                    Cancel,          // nobody wants it any more
                    RunCanary,       // compute these tokens beside the sequences, with digests
                    ForgetPrefixes,  // what was computed so far may be wrong: find none of it again
                    StepResult,      // a step is done
                    StepProgress,    // a step takes long, and goes on
                    StepFailed,      // a step cannot be finished
                    Undeliverable>;  // a plan did not reach its shard
  using local = Local<PeerDown, HeadChanged>;
};

/// A range of layers of one replica.
struct LayerShardInbox {
  static constexpr ActorKind kKind = ActorKind::kLayerShard;
  using wire = Wire<StepPlan,        // what the next step computes
                    StepAbort,       // forget that step
                    Hidden,          // its rows, from the stage before
                    ExpertOutput,    // what experts elsewhere made of rows
                    ExpertProgress,  // they take long, and go on
                    NotHere,         // they are not there (any more): ask another copy
                    Undeliverable>;  // a question, or hidden rows, did not arrive
  using local = Local<StepCut, StepFound, StepComputed, PeerDown, PeerUp, DevicesAvoided,
                      RoutesChanged, HeadChanged>;
};

/// The jobs of a shard that shares its layers with other tensor-parallel ranks. No actor: what
/// comes is taken at once, by the thread that brings it.
struct RankInbox {
  static constexpr ActorKind kKind = ActorKind::kRank;
  using wire = Wire<RankPart,    // what another rank has of an exchange
                    RankReady,   // another rank has come to an exchange
                    RankGo,      // all have: it has its turn
                    RankGroup>;  // news of the communicator
  using local = Local<>;
};

/// The routed experts of one device, for shards elsewhere.
struct ExpertGroupInbox {
  static constexpr ActorKind kKind = ActorKind::kExpertGroup;
  using wire = Wire<Dispatch,        // rows for experts of one layer
                    Undeliverable>;  // an answer did not arrive
  using local = Local<PassEnded>;
};

/// A machine that follows a head, to take its place when it is gone.
struct StandbyInbox {
  static constexpr ActorKind kKind = ActorKind::kStandby;
  using wire = Wire<Greeting,        // the head that it found
                    Refused,         // the head does not let it follow, and why
                    Succession,      // what the next head must know
                    KnownLines,      // and of the checkpoint
                    JournalCopy,     // and of requests
                    Followed,        // the head is alive
                    Stop,            // the cluster ends
                    Standing,        // there is no head where it sought one
                    Pledge,          // a worker's life is over, and who may take over as it knew
                    HeadReturns,     // the head that was gone wants to go on
                    Undeliverable>;  // ignored
  using local = Local<HeadUp, HeadDown, SessionUp, SessionDown, JournalKept, JournalFailed>;
};

/// The other end of a session that is not (yet) a member's: a program, or a worker that seeks.
struct SessionInbox {
  static constexpr ActorKind kKind = ActorKind::kClient;
  using wire = Wire<Greeting, Refused, ClientWelcome, StatusReply, StopReply, OperationProgress,
                    ClientGeneration, ClusterNews, NetworkPlan, PairReport, Succession, KnownLines,
                    JournalCopy, Followed, Standing, Stop, Undeliverable>;
  using local = Local<>;
};

}  // namespace troupe
