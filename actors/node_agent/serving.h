#pragma once

#include <map>
#include <memory>
#include <vector>

#include "actors/company/post.h"
#include "actors/device/device.h"
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
};

/// This node's actors of one version of the placement: expert groups, shards and replicas. They
/// wait for work from when their weights are loaded; the Router sends none before the version is
/// active on every node.
class Serving {
 public:
  struct Part {
    NodeAgentActions::Work work;
    NodeId node;
    Incarnation incarnation;
    Address router;
    ModelConfig model;
    LoadedPart weights;
  };
  /// Claims memory, makes the KV caches, publishes the experts and starts the actors.
  static Result<std::unique_ptr<Serving>> start(const NodeContext& context, Part part);
  /// As stop().
  ~Serving();

  PlacementVersion version() const { return part_.work.version; }
  void peer_down(NodeId node);
  std::vector<ReplicaReport> reports() const;

  /// Ends all actors; returns the handles of those that may still be ending.
  std::vector<ActorHandle> stop();

 private:
  Serving(const NodeContext& context, Part part) : context_(context), part_(std::move(part)) {}
  Status start_groups();
  Status start_shards();
  Status start_replicas();
  Status start_shard(const ShardPlacement& placement, std::shared_ptr<const ShardWeights> weights,
                     const std::shared_ptr<const ExpertRoutes>& routes);
  Address here(ActorKind kind, std::uint32_t index) const;
  Result<Address> shard_address(const ShardPlacement& shard) const;
  void run(const Address& address, ActorHandle actor);

  NodeContext context_;
  Part part_;
  std::map<NodeId, Incarnation> members_;
  std::vector<Device::Claim> expert_claims_;
  std::vector<std::pair<Address, ActorHandle>> actors_;
  std::vector<LayerShardActor> shards_;
  std::vector<ReplicaActor> replicas_;
};

}  // namespace troupe
