#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "actors/layer_shard/layer_shard_config.h"
#include "actors/node_agent/agent_effects.h"
#include "actors/replica/replica_config.h"
#include "actors/worker/compute_factory.h"
#include "model/expert_set.h"

namespace troupe {

/// What a version needs beyond what lives, with the memory of layers and caches claimed. Serving
/// plans it, a WeightSource builds it, Serving adopts it.
struct Preparation {
  struct Shard {
    ShardPlacement placement;
    LayerShardConfig config;
    ShardSpec spec;                         ///< used up by build()
    std::unique_ptr<ShardCompute> compute;  ///< once built
  };
  struct Group {
    std::uint32_t device = 0;
    PassSpec spec;
    MadePass made;  ///< once built
  };

  VersionWorkPtr work;
  std::shared_ptr<const ModelSizes> model;
  std::map<NodeId, Incarnation> members;
  std::map<std::uint32_t, ExpertSet::Map> experts;  ///< by device
  std::vector<Group> groups;
  std::vector<Shard> shards;
  std::vector<ReplicaConfig> replicas;
  std::shared_ptr<const ExpertRoutes> routes;  ///< once built
  ComputeFactory* factory = nullptr;
  std::vector<Device*> devices;  ///< by their index

  /// The slow part: caches, tables, routes. Any thread, once.
  Status build();
};

}  // namespace troupe
