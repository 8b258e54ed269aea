#include "model/memory_estimate.h"

#include "kernels/packed_matrix.h"
#include "model/kv_cache.h"
#include "model/layer_weights.h"

namespace troupe {
namespace {

using kernels::packed_bytes;
using kernels::WeightType;

std::uint64_t mlp_bytes(const ModelConfig& c, Numerics numerics, std::int64_t width,
                        const kernels::PackOptions& down) {
  return 2 * packed_bytes(numerics, WeightType::kBf16, width, c.hidden_size) +
         packed_bytes(numerics, WeightType::kBf16, c.hidden_size, width, down);
}

std::uint64_t attention_bytes(const ModelConfig& c, Numerics numerics) {
  const std::int64_t heads = c.num_heads;
  auto matrix = [&](std::int64_t n, std::int64_t k, const kernels::PackOptions& options = {}) {
    return static_cast<std::uint64_t>(packed_bytes(numerics, WeightType::kBf16, n, k, options));
  };
  std::uint64_t bytes = (2ull * c.hidden_size + c.kv_lora_rank + c.q_lora_rank) * sizeof(float);
  if (c.q_lora_rank > 0)
    bytes += matrix(c.q_lora_rank, c.hidden_size) + matrix(heads * c.qk_head_dim(), c.q_lora_rank);
  else
    bytes += matrix(heads * c.qk_head_dim(), c.hidden_size);
  bytes += matrix(c.kv_row(), c.hidden_size);
  bytes += static_cast<std::uint64_t>(heads) *
           (matrix(c.kv_lora_rank, c.qk_nope_head_dim, absorbed_options()) +
            matrix(c.v_head_dim, c.kv_lora_rank, absorbed_options()));
  return bytes + matrix(c.hidden_size, heads * c.v_head_dim, o_proj_options(c));
}

}  // namespace

std::uint64_t layer_bytes(const ModelConfig& c, Numerics numerics, std::int32_t layer) {
  const std::uint64_t attention = attention_bytes(c, numerics);
  if (c.layer_kind(layer) == LayerKind::kDense)
    return attention +
           mlp_bytes(c, numerics, c.intermediate_size, down_proj_options(c.intermediate_size));
  std::uint64_t bytes = attention + packed_bytes(numerics, WeightType::kBf16, c.num_experts,
                                                 c.hidden_size, gate_options());
  bytes += static_cast<std::uint64_t>(c.num_experts) * sizeof(float);
  const std::int64_t shared = c.shared_intermediate_size();
  return shared == 0 ? bytes : bytes + mlp_bytes(c, numerics, shared, down_proj_options(shared));
}

std::uint64_t shard_bytes(const ModelConfig& c, Numerics numerics, std::int32_t first,
                          std::int32_t last) {
  std::uint64_t bytes = 0;
  for (std::int32_t layer = first; layer < last; ++layer)
    bytes += layer_bytes(c, numerics, layer);
  if (first == 0)
    bytes += static_cast<std::uint64_t>(c.vocab_size) * static_cast<std::uint64_t>(c.hidden_size) *
             kernels::weight_size(WeightType::kBf16);
  if (last == c.num_layers)
    bytes += packed_bytes(numerics, WeightType::kBf16, c.vocab_size, c.hidden_size) +
             static_cast<std::uint64_t>(c.hidden_size) * sizeof(float);
  return bytes;
}

std::uint64_t expert_bytes(const ModelConfig& c, Numerics numerics) {
  return c.num_experts == 0 ? 0 : mlp_bytes(c, numerics, c.moe_intermediate_size, {});
}

std::uint64_t kv_bytes_per_token_layer(const ModelConfig& c, Numerics numerics) {
  return kv_layout(c, numerics).bytes_per_token_layer();
}

std::uint64_t model_bytes(const ModelConfig& c, Numerics numerics) {
  std::uint64_t bytes = shard_bytes(c, numerics, 0, c.num_layers);
  for (std::int32_t layer = 0; layer < c.num_layers; ++layer)
    if (c.layer_kind(layer) == LayerKind::kExperts)
      bytes += static_cast<std::uint64_t>(c.num_experts) * expert_bytes(c, numerics);
  return bytes;
}

}  // namespace troupe
