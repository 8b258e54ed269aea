#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/expert_ffn.h"
#include "kernels/packed_matrix.h"
#include "model/config.h"
#include "runtime/buffer.h"
#include "runtime/tensor_proof.h"

namespace troupe {

/// A tensor in memory: what it was when it was read, and where its packed bytes lie, in the order
/// of their digest. Lies within the weights that it belongs to.
struct HeldTensor {
  TensorProof proof;
  std::vector<std::span<const std::byte>> memory;
  bool second_form = false;  ///< another piece of this model packs the same tensor otherwise
};
using HeldTensors = std::vector<HeldTensor>;

/// Multi-head latent attention, in absorbed form: kv_b_proj is split by head into the map of q into
/// the latent space (W_UK) and the map of the attended latent out of it (W_UV). DeepSeek-V2, arXiv
/// 2405.04434, section 2.1. Shapes are [outputs, inputs].
struct AttentionWeights {
  std::vector<float> input_norm;  // [hidden]

  // Queries: q_b(norm(q_a(x))), or q(x) without a q_lora.
  kernels::PackedMatrix q_a;       // [q_lora, hidden]; empty without a q_lora
  std::vector<float> q_a_norm;     // [q_lora]
  kernels::PackedMatrix q_b;       // [heads * (nope + rope), q_lora or hidden]

  kernels::PackedMatrix kv_a;      // [kv_lora + rope, hidden]
  std::vector<float> kv_a_norm;    // [kv_lora]
  std::vector<kernels::PackedMatrix> w_uk;  // [heads] of [kv_lora, nope]: transposed
  std::vector<kernels::PackedMatrix> w_uv;  // [heads] of [v, kv_lora]

  kernels::PackedMatrix o;         // [hidden, heads * v], summed in slices of whole heads
};

/// A gated MLP: down(silu(gate(x)) * up(x)).
struct MlpWeights {
  kernels::PackedMatrix gate, up;  // [width, hidden]
  kernels::PackedMatrix down;      // [hidden, width], summed in slices
};

/// A layer without its routed experts.
struct LayerWeights {
  LayerKind kind = LayerKind::kDense;
  AttentionWeights attention;
  std::vector<float> post_attention_norm;  // [hidden]
  MlpWeights mlp;                          // the dense MLP, or the shared experts (may be empty)
  kernels::PackedMatrix gate;              // [experts, hidden], full precision; kExperts only
  std::vector<float> gate_bias;            // [experts], or empty

  bool has_mlp() const { return !mlp.gate.empty(); }
};

/// The embedding as it is stored.
struct EmbeddingTable {
  Buffer data;
  kernels::WeightSource source;  // [vocab, hidden], dense, in `data`
};

/// Layers [first, last) of a model.
struct ShardWeights {
  std::int32_t first = 0, last = 0;
  std::vector<LayerWeights> layers;  // [last - first]
  EmbeddingTable embedding;          // if first == 0
  std::vector<float> final_norm;     // [hidden], if last == num_layers
  kernels::PackedMatrix head;        // [vocab, hidden], if last == num_layers
  HeldTensors tensors;               // all of the above
};

/// One routed expert.
struct ExpertWeights {
  kernels::ExpertWeights mlp;
  HeldTensors tensors;
};

// How products that tensor parallelism may split are packed: as fixed slices along their inner
// dimension, so that every way to split them gives the same sums.
inline kernels::PackOptions o_proj_options(const ModelConfig& c) {
  const std::int64_t k = static_cast<std::int64_t>(c.num_heads) * c.v_head_dim;
  return {.slices = kernels::sum_slices(k, c.v_head_dim), .full_precision = false};
}
inline kernels::PackOptions down_proj_options(std::int64_t width) {
  return {.slices = kernels::sum_slices(width, 1), .full_precision = false};
}
/// The absorbed form has two products more than the published one, so their inputs are not rounded:
/// each rounding would be one that the model was not trained with.
inline kernels::PackOptions absorbed_options() { return {.slices = 1, .full_precision = true}; }
/// The gate's choice jumps on rounding, so its inputs are never rounded.
inline kernels::PackOptions gate_options() { return {.slices = 1, .full_precision = true}; }

}  // namespace troupe
