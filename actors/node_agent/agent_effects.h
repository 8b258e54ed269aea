#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/base/effects.h"
#include "actors/interfaces.h"

namespace troupe {

/// This node's part of a version of the placement.
struct VersionWork {
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
using VersionWorkPtr = std::shared_ptr<const VersionWork>;

// What a NodeAgent asks for. WorkerMachine does the part that concerns what the node serves, and
// WorkerHands carries the rest out.

// --- The head ---

/// Begin a session with the head; HeadUp or HeadDown follows.
struct ConnectHead {
  bool again = false;  ///< where the last session was, and not at the next of the addresses
};
/// End it, after what was sent has left.
struct CloseHead {};
/// A head may be there, too.
struct SeekAlso {
  std::string address;  ///< "host:port"
};
/// A message from one of the addresses that this node has or had: it says that it leaves as the
/// member that it was. To the head it goes on the session.
struct SendAs {
  Envelope envelope;
};
/// From now on this node's own address is (id, incarnation).
struct JoinedCluster {
  NodeId id;
  Incarnation incarnation;
};
/// Compute the hash of the checkpoint in that folder; CheckpointInspected follows.
struct InspectCheckpoint {
  std::string folder;
};
/// Read these tensors again, past the page cache; ProofsRead follows.
struct ProveTensors {
  std::vector<std::string> tensors;
};
/// What was read of these tensors may be wrong: WeightStore::discard().
struct DiscardTensors {
  std::vector<std::string> tensors;
};
/// Look at all copies in memory at once; CopiesProven follows.
struct ProveCopies {};
/// The membership is over: replicas, shards and groups of every version stop. Weights stay in
/// memory.
struct StopServing {
  NodeId id;
  Incarnation incarnation;  ///< nobody has those addresses any more
};
/// The head is gone: what the version in force here has lives on with its caches, and does nothing.
/// ResumeServing or StopServing follows.
struct SuspendServing {};
/// The same life goes on under another head.
struct ResumeServing {};
/// No head has come back for too long: what is still in memory, or comes there, goes.
struct LetWeightsGo {};
/// What this node's actors send to others waits.
struct HoldMail {
  NodeId id;
  Incarnation incarnation;
};
/// It leaves, in its order, or is dropped: then nobody is to have it any more.
struct EndHold {
  NodeId id;
  Incarnation incarnation;
  bool send = true;
};
/// The process ends, after what was sent has left.
struct WorkerExit {
  int code = 0;
  std::string reason;
};
/// For people.
struct LogLine {
  enum class Level : std::uint8_t { kInfo, kWarning, kError };
  std::string text;
  Level level = Level::kInfo;
};

// --- Peers ---

/// That life is over: the bulk lane lets nothing of it in any more.
struct FencePeer {
  Peer peer;
};
/// Close its connection. The same life may be a peer again.
struct ForgetPeer {
  Peer peer;
};
/// It will come: accept its token. PeerUp or PeerDown follows.
struct ExpectPeer {
  Peer peer;
};
/// Go to it. PeerUp or PeerDown follows.
struct ConnectPeer {
  Peer peer;
};
/// Have it send a sign of life.
struct AskPeer {
  Peer peer;
};
/// Measure the connection to it; LinkResult follows unless EndMeasuring does.
struct MeasurePeer {
  MeasureLink order;
};
struct EndMeasuring {
  std::uint64_t number = 0;
};
/// A life is over: shards ask others, and replicas that had a shard there end, with all of their
/// shards here.
struct PeerLost {
  NodeId node;
  Incarnation incarnation;
  std::string reason;
};
/// All devices that shards are to ask only if nobody else can answer.
struct AvoidDevices {
  std::set<DeviceRef> devices;
};

// --- Versions of the placement ---

/// That version will never serve: what was started for it alone ends. What `next` has too lives on.
struct DropVersion {
  PlacementVersion version;
  VersionWorkPtr next;  ///< null: nothing takes its place yet
};
/// Load what is not held yet and start what does not live yet, beside everything that serves; then
/// NodeAgent::loaded() or load_failed(), and load_progress() meanwhile. It takes the place of every
/// version that is not active.
struct LoadVersion {
  VersionWorkPtr work;
};
/// Every member has loaded it: shards take its routes, replicas and shards that it lacks end; then
/// NodeAgent::settled().
struct ActivateVersion {
  PlacementVersion version;
};
/// Nobody uses what is older: let go of what this version does not give.
struct RetireVersion {
  PlacementVersion version;
};

/// PeerDown and PeerUp are for the node's actors: whom they may ask.
using AgentEffects =
    Effects<ConnectHead, CloseHead, SeekAlso, SendAs, JoinedCluster, InspectCheckpoint,
            ProveTensors, DiscardTensors, ProveCopies, StopServing, SuspendServing, ResumeServing,
            LetWeightsGo, HoldMail, EndHold, WorkerExit, LogLine, FencePeer, ForgetPeer, ExpectPeer,
            ConnectPeer, AskPeer, MeasurePeer, EndMeasuring, PeerLost, PeerDown, PeerUp,
            AvoidDevices, DropVersion, LoadVersion, ActivateVersion, RetireVersion>;

}  // namespace troupe
