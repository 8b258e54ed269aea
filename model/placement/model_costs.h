#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace troupe {

/// What one layer asks of the device that its shard lies on.
struct LayerCosts {
  std::uint64_t bytes = 0;   ///< attention, norms, gate, shared experts or dense MLP
  bool has_experts = false;  ///< routed ones: they are placed on their own
};

/// What a model costs in memory with one kernel family; all that the planner knows of it.
struct ModelCosts {
  std::vector<LayerCosts> layers;
  std::int32_t num_experts = 0;       ///< routed, a layer that has them
  std::uint64_t expert_bytes = 0;     ///< one routed expert of one layer
  std::uint64_t embedding_bytes = 0;  ///< with the first layer
  std::uint64_t head_bytes = 0;       ///< final norm and output head, with the last layer
  std::uint64_t kv_bytes_per_token_layer = 0;
  std::uint64_t kv_bytes_per_token = 0;  ///< beside the layers', once a shard (the token's id)
};

/// What computing takes on a device beside weights and caches, in bytes: upper bounds.
struct ComputeCosts {
  std::int64_t rows = 0;   ///< tokens of a step
  std::int32_t top_k = 0;  ///< experts of a token
  /// A shard of the layers from the first to the last, which is included.
  std::function<std::uint64_t(std::int32_t first, std::int32_t last)> shard;
  /// The routed experts of a device, for so many pairs of a row and an expert that wait.
  std::function<std::uint64_t(std::int64_t pairs)> group;
  std::int64_t express_rows = 0;  ///< of the step that passes a replica's others
};

}  // namespace troupe
