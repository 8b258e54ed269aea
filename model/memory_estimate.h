#pragma once

#include <cstdint>

#include "model/config.h"
#include "runtime/numerics.h"

namespace troupe {

/// Bytes of packed weights, for placement. They are what the loaders allocate, give or take
/// alignment.

/// Attention, norms, gate, shared experts or dense MLP of one layer; no routed experts.
std::uint64_t layer_bytes(const ModelConfig& config, Numerics numerics, std::int32_t layer);

/// Layers [first, last), with the embedding if first is 0 and the head if last is num_layers.
std::uint64_t shard_bytes(const ModelConfig& config, Numerics numerics, std::int32_t first,
                          std::int32_t last);

/// One routed expert of one layer.
std::uint64_t expert_bytes(const ModelConfig& config, Numerics numerics);

/// KV cache of one token in one layer.
std::uint64_t kv_bytes_per_token_layer(const ModelConfig& config, Numerics numerics);

/// Everything: all layers, embedding, head and one copy of each routed expert.
std::uint64_t model_bytes(const ModelConfig& config, Numerics numerics);

}  // namespace troupe
