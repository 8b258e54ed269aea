#pragma once

#include <cstdint>
#include <span>

#include "model/placement/model_costs.h"
#include "model/spec/model_spec.h"
#include "runtime/numerics.h"

/// Bytes of a model in memory, for placement: what the loaders allocate.
namespace troupe {

/// Attention, norms, gate, shared experts or dense MLP of one layer; no routed experts.
std::uint64_t layer_bytes(const ModelSpec& spec, Numerics numerics, std::int32_t layer);

/// Layers [first, last], the last one included, with the model's ends if they are among them.
std::uint64_t shard_bytes(const ModelSpec& spec, Numerics numerics, std::int32_t first,
                          std::int32_t last);

/// One routed expert: the largest of all layers. 0: there are none.
std::uint64_t expert_bytes(const ModelSpec& spec, Numerics numerics);

/// KV cache of one token in one layer, all pools: the largest of all layers.
std::uint64_t kv_bytes_per_token_layer(const ModelSpec& spec, Numerics numerics);

/// Everything: all layers, both ends and one copy of each routed expert.
std::uint64_t model_bytes(const ModelSpec& spec, Numerics numerics);

/// The same as the planner wants it.
ModelCosts model_costs(const ModelSpec& spec, Numerics numerics);
/// Of tensor-parallel ranks of one model: each number the largest of any of them.
ModelCosts model_costs(std::span<const ModelSpec> ranks, Numerics numerics);

}  // namespace troupe
