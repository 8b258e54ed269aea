#pragma once

#include <cstdint>

#include "runtime/numerics.h"
#include "transport/message.h"

namespace troupe {

inline std::uint32_t tensor_ranks(const EngineOptions& engine) {
  return static_cast<std::uint32_t>(engine.tensor_parallel_size);
}
/// The layers of a shard, as its rank of `tensor_ranks` has them.
inline LayerRange layers_of(const ShardPlacement& shard, std::uint32_t tensor_ranks) {
  return {shard.first_layer, shard.last_layer, {shard.tp_rank, tensor_ranks}};
}

/// What the pieces of a checkpoint's model take in memory.
class ModelSizes {
 public:
  virtual ~ModelSizes() = default;
  virtual std::uint64_t expert_bytes(Numerics numerics) const = 0;
  /// Weights of those layers without routed experts; with the embedding and the head at the ends.
  virtual std::uint64_t shard_bytes(Numerics numerics, const LayerRange& layers) const = 0;
  /// KV cache of those layers.
  virtual std::uint64_t cache_bytes(Numerics numerics, const LayerRange& layers,
                                    std::int32_t blocks, std::int32_t block_size) const = 0;
  /// One row of a step of so many tensor-parallel ranks, in the largest message that it is part of.
  virtual std::uint64_t row_bytes(Numerics numerics, std::uint32_t ranks) const = 0;
};

}  // namespace troupe
