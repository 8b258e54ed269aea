#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/device/device.h"
#include "actors/layer_shard/expert_counter.h"
#include "actors/worker/bulk_lane.h"
#include "actors/worker/link_meter.h"
#include "actors/worker/preparation.h"
#include "actors/worker/weight_store.h"
#include "actors/worker/worker_effects.h"

namespace troupe {

/// What a node's actors compute with.
struct NodeContext {
  std::vector<Device*> devices;  ///< by their index
  ComputeFactory* factory = nullptr;
  std::shared_ptr<ExpertCounter> counter;  ///< of what the gates of this node's shards choose
  const BulkLane* lane = nullptr;          ///< null: a cluster of one node
  const WeightSource* source = nullptr;    ///< what it knows of the copies in memory; may be null
  std::uint32_t nccl = 0;                  ///< version of the NCCL that ranks may use; 0: none
  std::shared_ptr<const LinkMeter> meter = {};  ///< of the lane; may be null
};

/// Whether tensor-parallel ranks on these devices exchange by NCCL: their nodes have the version of
/// this node, `own`, and each has a device of its own, for NCCL refuses two on one. Every rank's
/// node comes to the same answer, since what a node has does not change during its life.
bool share_nccl(NodeId self, std::uint32_t own, const std::vector<Peer>& peers,
                const std::vector<DeviceRef>& ranks);

/// This node's actors during one life in the cluster: an expert group a device, and the shards and
/// replicas of every version of the placement that is active or pending. Versions share what they
/// have in common: a replica lives on as long as versions name it, with its shards and caches.
///
///     reserve ─► plan ─► Preparation::build (any thread) ─► adopt ─► activate ─► retire
///                                                             └ drop_pending
///
/// Expert groups host what any version gives them. Part of WorkerMachine: it starts, ends and tells
/// actors by effects; only memory is claimed and given back at once.
class Serving {
 public:
  struct Self {
    NodeId node;
    Incarnation incarnation;
    Ref<RouterInbox> router;
  };

  Serving(NodeContext context, const Self& self) : context_(std::move(context)), self_(self) {}

  /// Claims the memory of caches, layers and experts. kResourceExhausted: what does not fit.
  Result<Reservation> reserve(const VersionWork& work, const ModelSizes& model);
  /// What has to be started for that version, in that memory.
  Result<std::shared_ptr<Preparation>> plan(VersionWorkPtr work,
                                            std::shared_ptr<const ModelSizes> model,
                                            LoadedPart weights, Reservation memory);
  /// Publishes the experts and starts the actors. An error leaves everything as it was, but for the
  /// groups.
  Status adopt(Preparation& preparation, WorkerEffects& effects);
  /// From now on shards follow that version's routes, and what it lacks ends.
  void activate(PlacementVersion version, WorkerEffects& effects);
  /// Experts that only older versions give are no longer hosted.
  void retire(PlacementVersion version, WorkerEffects& effects);
  /// Ends what only versions have that are not active, but keeps what `next` has too, if any.
  void drop_pending(const VersionWork* next, WorkerEffects& effects);
  /// Ends all actors.
  void stop(WorkerEffects& effects);
  /// The head is gone, and with it all connections to peers: replicas drop their sequences, and
  /// keep what they have computed. What is pending has been dropped.
  void suspend(WorkerEffects& effects);
  /// They go on under another head, with that Router.
  void resume(const Ref<RouterInbox>& router, WorkerEffects& effects);

  /// A shard asks nothing by older routes any more.
  void on(const RoutesSettled& settled);
  /// The version that was activated, once, when no question by older routes is open any more: every
  /// shard that lives has said so.
  std::optional<PlacementVersion> take_settled();

  /// Ends the replicas that have a shard on that life of a node or an earlier one, with all of
  /// their shards here.
  void member_lost(const PeerLost& lost, WorkerEffects& effects);
  void peer_down(const PeerDown& peer, WorkerEffects& effects);
  void peer_up(const PeerUp& peer, WorkerEffects& effects);
  void avoid(std::set<DeviceRef> devices, WorkerEffects& effects);

  std::vector<ReplicaReport> reports() const;
  /// The actors that have been told to end since the last call.
  std::vector<Address> take_ending() { return std::exchange(ending_, {}); }
  std::string violation() const;

 private:
  struct Version {
    std::set<std::uint32_t> shards;    ///< of this node, by shard_index()
    std::set<std::uint32_t> replicas;  ///< of this node
    std::map<std::uint32_t, ExpertSet::Map> experts;
    std::shared_ptr<const ExpertRoutes> routes;
    std::map<NodeId, Incarnation> members;
  };
  /// What a device hosts, and the memory that it takes.
  struct Group {
    Numerics numerics = Numerics::kReference;
    std::map<ExpertKey, Device::Claim> claims;
  };
  /// Device, first, last.
  using Layers = std::tuple<std::uint32_t, std::int32_t, std::int32_t, TensorRank>;
  using Keep = std::function<bool(std::uint32_t)>;

  // serving_plan.cpp
  Status plan_shard(const ShardPlacement& placement, std::shared_ptr<const ShardWeights> weights,
                    Preparation& out);
  Status plan_neighbours(const ShardPlacement& placement, const Preparation& of,
                         LayerShardConfig& config) const;
  Status plan_replica(const ReplicaPlacement& replica, Preparation& out) const;
  Result<Ref<LayerShardInbox>> shard_address(const ShardPlacement& shard,
                                             const Preparation& of) const;
  Status reserve_shard(const ShardPlacement& placement, const VersionWork& work,
                       const ModelSizes& model, Reservation& memory);
  Status reserve_experts(const VersionWork& work, const ModelSizes& model, Reservation& memory);
  Result<std::shared_ptr<const Device::Claim>> claim_layers(Device& device,
                                                            const LayerRange& layers,
                                                            std::uint64_t bytes);

  void publish_experts(WorkerEffects& effects);
  void start_groups(Preparation& preparation, WorkerEffects& effects);
  void start_shards(Preparation& preparation, WorkerEffects& effects);
  void note_spans(const Preparation& preparation);
  void end_unless(const Keep& keep_shard, const Keep& keep_replica, WorkerEffects& effects);
  void end(const Address& actor, WorkerEffects& effects);
  template <class Inbox>
  Ref<Inbox> here(std::uint32_t index) const {
    return {self_.node, self_.incarnation, index};
  }

  NodeContext context_;
  Self self_;
  std::map<PlacementVersion, Version> versions_;
  std::optional<PlacementVersion> active_;
  std::optional<std::set<std::uint32_t>> unsettled_;  ///< shards; none: nobody waits for them
  std::map<std::uint32_t, Group> groups_;             ///< by device
  std::map<std::uint32_t, ShardPlacement> shards_;    ///< that live, by shard_index()
  std::map<std::uint32_t, std::shared_ptr<ReportSlot>> replicas_;  ///< that live, by id
  std::map<std::uint32_t, std::set<NodeId>> spans_;  ///< a replica's nodes, by its id
  std::map<Layers, std::weak_ptr<const Device::Claim>> layers_;
  std::map<NodeId, PeerDown> down_;  ///< peers that cannot be reached now
  std::set<DeviceRef> avoided_;
  std::vector<Address> ending_;
};

}  // namespace troupe
