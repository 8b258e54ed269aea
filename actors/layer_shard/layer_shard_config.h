#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/interfaces.h"
#include "actors/layer_shard/expert_routes.h"
#include "runtime/tensor_rank.h"

namespace troupe {

/// What a shard is started with.
struct LayerShardConfig {
  Ref<LayerShardInbox> self;
  Ref<ReplicaInbox> replica;
  std::optional<Ref<LayerShardInbox>> previous;  ///< of the stage before; none on the first
  std::optional<Ref<LayerShardInbox>> next;      ///< of the next stage; none on the last
  std::vector<Ref<LayerShardInbox>> ranks{};     ///< that share its layers, by tensor-parallel rank
  std::vector<DeviceRef> rank_devices{};         ///< theirs, in the same order
  TensorRank rank{};                             ///< its own
  bool by_nccl = false;                          ///< they all exchange by NCCL
  std::uint32_t replica_id = 0;
  DeviceRef device;
  std::shared_ptr<const ExpertRoutes> routes;
  std::map<NodeId, Incarnation> members;  ///< of the placement, this node included
};

}  // namespace troupe
