#pragma once

#include <cstdint>
#include <vector>

#include "runtime/ids.h"
#include "runtime/numerics.h"

namespace troupe {

/// A contiguous range of layers of one replica, on one device. Layers count from 0; `last` is
/// included.
struct ShardPlacement {
  std::uint32_t replica = 0;
  std::uint32_t stage = 0;    ///< pipeline stage, 0 first
  std::uint32_t tp_rank = 0;
  std::int32_t first_layer = 0;
  std::int32_t last_layer = 0;
  DeviceRef device;
  bool operator==(const ShardPlacement&) const = default;
};

/// One data-parallel replica. Its Replica actor lives on the node of its first shard.
struct ReplicaPlacement {
  std::uint32_t id = 0;
  NodeId node;
  /// Blocks of every shard's pool: the least that its devices have room for.
  std::int32_t kv_blocks = 0;
  bool operator==(const ReplicaPlacement&) const = default;
};

/// One copy of a routed expert.
struct ExpertSlot {
  std::int32_t expert = 0;
  DeviceRef device;
  bool operator==(const ExpertSlot&) const = default;
};

/// Where the routed experts of one layer are.
struct LayerExperts {
  std::int32_t layer = 0;
  std::vector<ExpertSlot> slots;
  bool operator==(const LayerExperts&) const = default;
};

/// Which device holds what: one immutable version. Versions coexist until no step uses the older.
struct Placement {
  PlacementVersion version;
  Numerics numerics = Numerics::kReference;
  std::vector<ReplicaPlacement> replicas;
  std::vector<ShardPlacement> shards;  ///< ordered by (replica, stage, tp_rank)
  std::vector<LayerExperts> experts;   ///< ordered by layer; only layers with routed experts
  /// Second tier: copies that a node keeps in host memory without serving them, so that the loss of
  /// another node reads no file. Ordered by layer; a slot's device only names the node.
  std::vector<LayerExperts> tier;
  bool operator==(const Placement&) const = default;
};

/// A shard's actor index: unique in the cluster.
constexpr std::uint32_t shard_index(std::uint32_t replica, std::uint32_t stage,
                                    std::uint32_t tp_rank) {
  return (replica << 16) | (stage << 4) | tp_rank;
}
inline std::uint32_t shard_index(const ShardPlacement& shard) {
  return shard_index(shard.replica, shard.stage, shard.tp_rank);
}

}  // namespace troupe
