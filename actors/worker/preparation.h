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

/// The memory that a version needs beyond what lives, claimed before any of it is read.
struct Reservation {
  std::vector<std::shared_ptr<const Device::Claim>> layers;
  std::map<std::uint32_t, Device::Claim> caches;                        ///< by shard_index()
  std::map<std::uint32_t, std::map<ExpertKey, Device::Claim>> experts;  ///< by device
};

/// What a version needs beyond what lives. Serving plans it, a WeightSource builds it, Serving
/// adopts it.
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
  Reservation memory;                               ///< of experts, and what shards do not take
  std::map<std::uint32_t, ExpertSet::Map> experts;  ///< by device
  std::vector<Group> groups;
  std::vector<Shard> shards;
  std::vector<ReplicaConfig> replicas;
  std::shared_ptr<const ExpertRoutes> routes;  ///< once built
  ComputeFactory* factory = nullptr;

  /// The slow part: caches, tables, routes. Any thread, once.
  Status build();
};

}  // namespace troupe
