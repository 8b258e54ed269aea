#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "actors/company/post.h"
#include "actors/device/device.h"
#include "actors/layer_shard/expert_counter.h"
#include "actors/layer_shard/layer_shard_actor.h"
#include "actors/node_agent/node_agent.h"
#include "actors/node_agent/weight_store.h"
#include "actors/replica/replica_actor.h"

namespace caf {
class actor_system;
}

namespace troupe {

/// Where a node's actors live.
struct NodeContext {
  caf::actor_system& system;
  Post& post;
  std::vector<std::unique_ptr<Device>>& devices;
  std::shared_ptr<ExpertCounter> counter;  ///< of what the gates of this node's shards choose
};

/// This node's actors during one membership: an expert group a device, and the shards and replicas
/// of every version of the placement that is active or pending. Versions share what they have in
/// common: a replica lives on as long as versions name it, with its shards and their caches.
///
///     plan ─► Preparation::build (any thread) ─► adopt ─► activate ─► retire
///                                                  └ drop_pending
///
/// Expert groups host what any version gives them. All calls come from one thread, but build().
class Serving {
 public:
  struct Self {
    NodeId node;
    Incarnation incarnation;
    Address router;
  };
  /// A shard that a version has and that does not live yet.
  struct NewShard {
    ShardPlacement placement;
    LayerShardConfig config;
    KvCacheSpec cache;
    Device* device = nullptr;
    std::shared_ptr<const ShardWeights> weights;
    Device::Claim cache_memory;
    std::shared_ptr<Device::Claim> weight_memory;  ///< shared by all shards of those layers
    std::shared_ptr<ShardCompute> compute;         ///< once built
  };
  /// What a version needs beyond what lives, with its memory claimed.
  struct Preparation {
    NodeAgentActions::Work work;
    ModelConfig model;
    std::map<std::uint32_t, ExpertSet::Map> experts;  ///< by device
    std::shared_ptr<ExpertCounter> counter;
    std::map<NodeId, Incarnation> members;
    std::vector<NewShard> shards;
    std::vector<ReplicaConfig> replicas;
    std::shared_ptr<const ExpertRoutes> routes;  ///< once built

    /// The slow part: caches, tables, routes.
    Status build();
  };

  Serving(const NodeContext& context, const Self& self) : context_(context), self_(self) {}
  /// As stop().
  ~Serving();

  /// What has to be started for that version; claims the memory of caches and layers.
  Result<Preparation> plan(NodeAgentActions::Work work, const ModelConfig& model,
                           LoadedPart weights);
  /// Claims the experts' memory, publishes them and starts the actors. An error leaves everything
  /// as it was.
  Status adopt(Preparation preparation);
  /// From now on shards follow that version's routes, and what it lacks ends. `settled` is called
  /// once, from any thread, when no question by older routes is open any more.
  void activate(PlacementVersion version, std::function<void()> settled);
  /// Experts that only older versions give are no longer hosted.
  void retire(PlacementVersion version);
  /// Ends what only versions have that are not active, but keeps what `next` has too, if any.
  void drop_pending(const NodeAgentActions::Work* next);

  /// Ends the replicas that have a shard on that life of a node, with all of their shards here.
  void member_lost(NodeId node, Incarnation incarnation);
  void peer_down(NodeId node);
  void peer_up(NodeId node);
  void avoid(std::set<DeviceRef> devices);

  std::vector<ReplicaReport> reports() const;
  /// The actors that have been told to end since the last call; they may still be ending.
  std::vector<ActorHandle> take_ending() { return std::exchange(ending_, {}); }
  /// Ends all actors.
  void stop();

 private:
  struct Version {
    std::set<std::uint32_t> shards;    ///< of this node, by shard_index()
    std::set<std::uint32_t> replicas;  ///< of this node
    std::map<std::uint32_t, ExpertSet::Map> experts;
    std::shared_ptr<const ExpertRoutes> routes;
    std::map<NodeId, Incarnation> members;
  };
  struct Shard {
    ShardPlacement placement;
    LayerShardActor actor;
  };
  /// What a device hosts, and the memory that it takes.
  struct Group {
    ActorHandle actor;
    Numerics numerics = Numerics::kReference;
    std::map<ExpertKey, Device::Claim> claims;
  };
  using Layers = std::tuple<std::uint32_t, std::int32_t, std::int32_t>;  // device, first, last

  Status plan_shard(const ShardPlacement& placement, std::shared_ptr<const ShardWeights> weights,
                    Preparation& out);
  Status plan_replica(const ReplicaPlacement& replica, Preparation& out);
  Result<Address> shard_address(const ShardPlacement& shard, const Preparation& of) const;
  Result<std::shared_ptr<Device::Claim>> claim_layers(Device& device, const ShardPlacement& shard,
                                                      const Preparation& of);
  Status claim_experts(const Preparation& preparation);
  void publish_experts();
  void start_groups(const Preparation& preparation);
  void end_unless(const std::function<bool(std::uint32_t)>& keep_shard,
                  const std::function<bool(std::uint32_t)>& keep_replica);
  Address here(ActorKind kind, std::uint32_t index) const;
  void end(const Address& address, const ActorHandle& actor);

  NodeContext context_;
  Self self_;
  std::map<PlacementVersion, Version> versions_;
  std::optional<PlacementVersion> active_;
  std::map<std::uint32_t, Group> groups_;                          // by device
  std::map<std::uint32_t, Shard> shards_;                          // by shard_index()
  std::map<std::uint32_t, ReplicaActor> replicas_;                 // by id
  std::map<std::uint32_t, std::map<NodeId, Incarnation>> spans_;   // a replica's nodes, by its id
  std::map<Layers, std::weak_ptr<Device::Claim>> layers_;
  std::set<NodeId> down_;  // peers that cannot be reached now
  std::set<DeviceRef> avoided_;
  std::vector<ActorHandle> ending_;
};

}  // namespace troupe
