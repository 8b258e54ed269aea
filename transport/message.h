#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/device_health.h"
#include "runtime/engine_options.h"
#include "runtime/generation.h"
#include "runtime/ids.h"
#include "runtime/placement.h"
#include "runtime/result.h"
#include "runtime/step.h"
#include "runtime/tensor_proof.h"
#include "runtime/tensor_rank.h"
#include "transport/held.h"
#include "transport/link_messages.h"
#include "transport/parcel_messages.h"
#include "transport/protocol.h"
#include "transport/rank_messages.h"
#include "transport/standby_messages.h"

/// Everything that actors say to each other. In a process a message is one of these structs,
/// immutable behind a reference count: never copied, never serialised. Between nodes the codec
/// turns it into Cap'n Proto (transport/schema) and back; it validates there, once.
namespace troupe {

// --- Formation (control lane) -------------------------------------------------------------------

/// head -> anyone whose TLS handshake succeeded: what this cluster is.
struct Greeting {
  ProtocolRange protocol;
  std::string cluster_id;
  std::string version;
  std::string model_path;            ///< the checkpoint's folder on the head
  std::string checkpoint_hash;       ///< hex; over config.json and the safetensors headers
  std::optional<Numerics> numerics;  ///< once the head has picked
  /// Of where model_path leads, links resolved: the files at another place are others.
  std::uint64_t model_place = 0;
};

struct DeviceInventory {
  std::string kind = "cpu";  ///< cpu | cuda
  std::uint64_t memory_total = 0;
  std::uint32_t threads = 1;
  std::string name = {};  ///< of the product, for people; empty: not known
  /// Of tensor cores, which compute alike where it is the same: "sm_90"; empty: it has none.
  std::string architecture = {};
};

/// worker -> head: my inventory.
struct Join {
  ProtocolRange protocol;
  std::string version;
  std::string host;
  std::int32_t pid = 0;
  std::string role = "worker";
  std::vector<Numerics> numerics;  ///< families that this processor can run
  std::string checkpoint_hash;
  std::vector<DeviceInventory> devices;
  NodeId held_id;            ///< id from an earlier life in this cluster; 0: none
  std::string held_cluster;  ///< the cluster that gave it
  std::uint64_t held_weight_bytes = 0;
  std::vector<LayerRange> held_shards;    ///< weights still in memory from an earlier membership
  std::vector<HeldExperts> held_experts;  ///< the same, ordered by layer
  std::uint64_t tier_memory = 0;   ///< host bytes for experts that others serve (second tier)
  std::string fabric_address;      ///< where peers reach its bulk lane (transport/bulk_address.h)
  std::string fabric_description;  ///< what was chosen and why, for the status
  std::uint32_t nccl = 0;          ///< version of the NCCL that its ranks may use; 0: none
  std::optional<HeldRole> held_role = {};  ///< of the life with held_id
  FabricPort fabric_port = {};
};

/// head -> worker or client: no, and why, in one sentence.
struct Refused {
  ErrorCode code = ErrorCode::kRefused;
  std::string reason;
};

/// head -> worker: you are a member. With the life of its held role that goes on; else it ends.
struct Welcome {
  NodeId id;
  Incarnation incarnation;
  std::uint32_t lease_ms = 0;
  std::uint32_t keep_for_s = 60;  ///< how long it keeps what it has when the head is gone
};

struct DeviceReport {
  std::uint64_t memory_used = 0;
  float utilization = 0;           ///< [0, 1] over the last interval
  std::uint32_t probe_us = 0;      ///< time of a small fixed piece of work, the newest; 0: none yet
  std::string failed = {};         ///< why it computes no more; empty: it does
  std::uint64_t experts_read = 0;  ///< how often an expert's weights were read, since it began
  DeviceHealth health = {};
};

struct ReplicaReport {
  std::uint32_t replica = 0;
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::int32_t kv_blocks_total = 0;
  std::int32_t kv_blocks_used = 0;
  std::uint64_t preemptions = 0;
  std::int32_t kv_blocks_cached = 0;  ///< that no sequence uses, kept for later ones
};

/// What a node knows of the copies that it holds.
struct ProofReport {
  std::uint32_t parts = 0;     ///< tensors in memory
  std::uint32_t proven = 0;    ///< of them, found as they were loaded in the last whole round
  std::uint32_t oldest_s = 0;  ///< since the last proof of the part that has waited longest
  std::uint32_t round_s = 0;   ///< that a round through all parts takes; 0: none has ended yet
};

/// worker -> head, while its devices make progress: renews the lease.
struct Renew {
  std::uint64_t sequence = 0;
  std::vector<DeviceReport> devices;
  std::vector<ReplicaReport> replicas;
  ProofReport proofs = {};
  std::uint64_t heard = 0;  ///< the newest Renew whose answer has come; 0: none has
};
/// head -> worker: the lease begins again, from when that Renew was sent.
struct Renewed {
  std::uint64_t sequence = 0;
};

/// worker -> head: I go, in order.
struct Leave {
  std::string reason;
};

/// head -> worker: hold what `placement` gives you; load what you do not have yet.
struct Load {
  Placement placement;
  EngineOptions engine;     ///< resolved: max_model_len and block_size are final
  std::vector<Peer> peers;  ///< those on its routes that the receiver was not told of before
};
struct LoadProgress {
  PlacementVersion version;
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
};
struct Loaded {
  PlacementVersion version;
};
struct LoadFailed {
  PlacementVersion version;
  Error error;
};
/// head -> worker: every member has loaded that version: from now on steps follow its routes, and
/// replicas and shards that it lacks end.
struct Activate {
  PlacementVersion version;
};
/// worker -> head: nothing on this node waits for an answer under an older version.
struct Activated {
  PlacementVersion version;
};
/// head -> worker: no node uses anything older than that version: let go of what it does not give.
struct Retire {
  PlacementVersion version;
};
/// head -> worker: that life of a node is over, whatever its sockets say.
struct MemberLost {
  NodeId node;
  Incarnation incarnation;
  std::string reason;
};
/// worker -> head, about once a second while tokens flow: how many rows its gates sent to each
/// expert since the last time.
struct ExpertCounts {
  struct Layer {
    std::int32_t layer = 0;
    std::vector<std::uint32_t> tokens;  ///< by expert
  };
  std::vector<Layer> layers;  ///< ordered by layer
};
/// head -> worker: devices that are far slower than they were: ask them only if nobody else can.
struct Avoid {
  std::vector<DeviceRef> devices;  ///< all of them; empty: none any more
};
/// head -> worker: end in order.
struct Stop {
  std::string reason;
};

// --- Proofs (control lane) ----------------------------------------------------------------------

/// worker -> head: before a Loaded, in portions: what was read for it, and what is held from
/// before, once a membership. Or, `fresh`, the answer to a Prove.
struct TensorProofs {
  bool fresh = false;  ///< read again past the page cache
  std::vector<TensorProof> tensors;
  std::optional<Error> error = {};       ///< of a fresh one: why some cannot be read
  std::vector<std::string> unread = {};  ///< which
  /// Of a fresh one: of files that were opened afresh, since they had changed.
  bool reopened = false;
  /// Not empty, and then nothing else: a file has changed since it was opened; it is opened afresh.
  std::string changed = {};
};
/// head -> worker: read these tensors again, past the page cache.
struct Prove {
  std::vector<std::string> tensors;
};
/// head -> worker: what it read of these tensors may be wrong. What does not serve goes, and is
/// read again when it is wanted; what serves goes with the membership.
struct Discard {
  std::vector<std::string> tensors;
};
/// worker -> head: a copy in this node's memory is not what was loaded; it computes with none of
/// its copies until they are proven.
struct ProofFailed {
  std::string tensor;
  std::string reason;             ///< for people
  std::uint32_t last_good_s = 0;  ///< since its last good proof
};
/// Supervisor -> Replica: compute these tokens and some more, greedily.
struct RunCanary {
  std::uint32_t replica = 0;
  std::uint64_t run = 0;
  std::vector<TokenId> prompt;
  std::uint32_t generate = 0;
};
/// Replica -> Supervisor: what came of it. An error says nothing of what the replica computes: a
/// step failed, and it is asked again, or it has no room for a canary at all.
struct CanaryResult {
  std::uint32_t replica = 0;
  std::uint64_t run = 0;
  std::vector<TokenId> tokens;         ///< the generated ones
  std::vector<std::uint64_t> digests;  ///< StepResult's: of the prompt, then of each token
  std::optional<Error> error = {};
  bool no_room = false;  ///< that is why: asking again is of no use
};

/// Supervisor -> Replica: a device or a copy that had a share in rows so far was wrong, or is gone
/// before it has proven that it was not. No later sequence finds any of them.
struct ForgetPrefixes {
  std::uint32_t replica = 0;
};

// --- Requests (control lane) --------------------------------------------------------------------

/// Router -> Replica: generate this sequence. `output` is what an earlier attempt already gave.
struct Submit {
  SequenceId sequence;
  std::uint32_t attempt = 0;
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;
  SamplingParams sampling;
  std::uint32_t max_tokens = 0;       ///< of output, `output` included
  std::vector<TokenId> stop_tokens;   ///< empty: ignore_eos
  std::int32_t prompt_logprobs = -1;  ///< as SamplingParams::top_logprobs
  std::uint64_t owner = 0;            ///< whose it is, as RequestName's: its place among others
  float weight = 1;                   ///< the owner's, as KeyShare's
  std::int32_t priority = 0;          ///< within the owner's; lower values go first
  Pooling pooling = Pooling::kNone;   ///< whose hidden states are wanted
  std::uint32_t hidden_width = 0;     ///< numbers of one, with pooling
};
/// Router -> Replica: nobody wants it any more; free its blocks.
struct Cancel {
  SequenceId sequence;
  std::uint32_t attempt = 0;
};

/// What a step did to one sequence.
struct SequenceEvent {
  SequenceId sequence;
  std::uint32_t attempt = 0;
  bool started = false;     ///< its first step was planned
  std::uint32_t index = 0;  ///< of tokens[0] in the output
  std::vector<TokenOutput> tokens;
  FinishReason finish = FinishReason::kNone;
  std::uint32_t prompt_index = 0;  ///< prompt position of prompt_logprobs[0]
  std::vector<TokenOutput> prompt_logprobs;
  std::optional<Error> error;       ///< ends the attempt
  std::int32_t cached_tokens = -1;  ///< with `started`: found as prefixes; -1: there is no cache
  std::uint32_t hidden_index = 0;   ///< of all that the sequence asked for: numbers before `hidden`
  std::vector<float> hidden = {};
};
/// Replica -> Router: one message a step.
struct SequenceEvents {
  std::uint32_t replica = 0;
  std::vector<SequenceEvent> events;
};

// --- Steps (bulk lane, or by pointer) -----------------------------------------------------------

/// Replica -> each of its LayerShards.
struct StepPlan {
  std::uint32_t replica = 0;
  PlacementVersion version;
  StepPlanBody body;
};
/// LayerShard -> the next one: float32 [rows, hidden], rows in the order of the plan.
struct Hidden {
  std::uint32_t replica = 0;
  StepId step;
  std::uint32_t rows = 0;
  Payload payload;
  std::vector<std::uint64_t> digests = {};  ///< as StepResult's, of the layers so far
};
/// last LayerShard -> Replica.
struct StepResult {
  std::uint32_t replica = 0;
  StepId step;
  std::vector<SequenceResult> sequences;
  /// Of the canary's rows, if it is in the step: XXH3-64 of what each layer's attention and then
  /// its feed-forward part gave, by layer.
  std::vector<std::uint64_t> digests = {};
};
/// LayerShard -> Replica, about once a second while a step takes longer: it is being computed.
struct StepProgress {
  std::uint32_t replica = 0;
  StepId step;
};
/// any LayerShard -> Replica: the step cannot be finished; nothing of it counts.
struct StepFailed {
  std::uint32_t replica = 0;
  StepId step;
  Error error;
};
/// Replica -> LayerShards, and on to the stage that has its hidden rows: forget that step.
struct StepAbort {
  std::uint32_t replica = 0;
  StepId step;
};

/// One (token, expert) product: `row` of the dispatched rows through `expert`.
struct ExpertPair {
  std::uint32_t row = 0;
  std::int32_t expert = 0;
  bool operator==(const ExpertPair&) const = default;
};
/// LayerShard -> ExpertGroup: wire type [rows, hidden].
struct Dispatch {
  std::uint64_t call = 0;  ///< the shard's own number for this question
  PlacementVersion version;
  std::int32_t layer = 0;
  std::uint32_t rows = 0;
  std::vector<ExpertPair> pairs;
  Payload payload;
  bool express = false;  ///< of an express step: before others
};
/// ExpertGroup -> LayerShard: wire type [pairs, hidden], in the order of the pairs.
struct ExpertOutput {
  std::uint64_t call = 0;
  std::uint32_t pairs = 0;
  Payload payload;
};
/// ExpertGroup -> LayerShard, about once a second while an answer takes longer: its device works.
struct ExpertProgress {
  std::uint64_t call = 0;
};
/// ExpertGroup -> LayerShard: it no longer has them (or cannot compute them): ask another copy.
struct NotHere {
  std::uint64_t call = 0;
  std::vector<std::int32_t> experts;
  std::string reason;
};

// --- Clients (control lane) ---------------------------------------------------------------------

/// client -> head, instead of Join: a program that asks (status, stop, embedding).
struct ClientHello {
  ProtocolRange protocol;
  std::string program;
};
/// head -> client: your session.
struct ClientWelcome {
  std::uint32_t session = 0;
};
/// client -> head. `query` numbers the client's questions.
struct StatusQuery {
  std::uint64_t query = 0;
};
struct StatusReply {
  std::uint64_t query = 0;
  std::string json;
};
struct StopQuery {
  std::uint64_t query = 0;
};
struct StopReply {
  std::uint64_t query = 0;
  std::vector<std::int32_t>
      pids;  ///< the head's and its local workers': gone when the stop is done
};
/// client -> head: move everything off a node, then let it leave.
struct DrainQuery {
  std::uint64_t query = 0;
  NodeId node;
};
/// client -> head: move experts now to where the load wants them.
struct RebalanceQuery {
  std::uint64_t query = 0;
};
/// head -> client: news of a drain or a rebalance; after the one that is finished none follows.
struct OperationProgress {
  std::uint64_t query = 0;
  std::uint64_t done = 0;  ///< of `total` pieces that have to move
  std::uint64_t total = 0;
  std::string text;  ///< for people
  bool finished = false;
  std::optional<Error> error;  ///< ends it
};
struct ClientGenerate {
  std::uint64_t query = 0;
  GenerationRequest request;
};
struct ClientCancel {
  std::uint64_t query = 0;
};
struct ClientGeneration {
  std::uint64_t query = 0;
  GenerationEvent event;
};
/// client -> head: how a worker ended, said by what it left behind: it crashed by itself.
struct CrashReport {
  std::uint64_t query = 0;
  NodeId node;
  Incarnation incarnation;
  std::int32_t signal = 0;
  std::string reason;
};
/// client -> head: send me cluster events from now on.
struct Subscribe {};
struct ClusterNews {
  ClusterEvent event;
};

// --- Delivery -----------------------------------------------------------------------------------

/// to the sender: that message did not arrive.
struct Undeliverable {
  Address to;
  std::uint32_t kind = 0;       ///< index of the message in the variant
  std::uint64_t reference = 0;  ///< the step, call or sequence it was about
  Error error;
};

using Message = std::variant<
    Greeting, Join, Refused, Welcome, Renew, Renewed, Leave, Load, LoadProgress, Loaded, LoadFailed,
    Activate, Retire, Stop, PeerUnreachable, Submit, Cancel, SequenceEvents, StepPlan, Hidden,
    StepResult, StepFailed, StepAbort, Dispatch, ExpertOutput, NotHere, ClientHello, ClientWelcome,
    StatusQuery, StatusReply, StopQuery, StopReply, ClientGenerate, ClientCancel, ClientGeneration,
    Subscribe, ClusterNews, Undeliverable, Activated, MemberLost, Connect, ExpertCounts, Avoid,
    DrainQuery, RebalanceQuery, OperationProgress, TensorProofs, Prove, ProofFailed, RunCanary,
    CanaryResult, StepProgress, ExpertProgress, CrashReport, Discard, ForgetPrefixes, RankPart,
    RankReady, RankGo, RankGroup, Parcel, ParcelGroup, Follow, Succession, KnownLines, JournalCopy,
    Followed, Successor, SuccessorKnown, Standing, Pledge, HeadReturns, NetworkQuery, NetworkPlan,
    PairReport, MeasureLink, EndMeasure, LinkMeasured, LinkProbe, LinkEcho>;
using MessagePtr = std::shared_ptr<const Message>;

/// The protocol that an end must speak to know a message and what is in it; 0: any does.
std::uint32_t protocol_of(const Message& message);

/// A message on its way.
struct Envelope {
  Address from;
  Address to;
  MessagePtr message;
};

template <class T>
MessagePtr message_of(T&& content) {
  return std::make_shared<const Message>(std::forward<T>(content));
}
}  // namespace troupe
