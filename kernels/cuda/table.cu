#include "kernels/cuda/ops.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {

Backend backend(bool plain, std::string_view name) {
  return {
      .name = name,
      .attention = plain ? plain_attention : attention,
      .bad_rows = bad_rows,
      .chosen_mlp = plain ? plain_chosen_mlp : chosen_mlp,
      .combine = combine,
      .combine_dense = combine_dense,
      .copy = copy,
      .embedding = embedding,
      .expert_mlp = plain ? plain_expert_mlp : expert_mlp,
      .from_wire = from_wire,
      .gated_mlp = plain ? plain_gated_mlp : gated_mlp,
      .join = join,
      .linear = plain ? plain_linear : linear,
      .moe_gate = moe_gate,
      .prepare = prepare,
      .residual_add = residual_add,
      .rms_norm = rms_norm,
      .rope = rope,
      .sample = sample,
      .silu_mul = silu_mul,
      .store_kv = store_kv,
      .to_wire = to_wire,
      .memory = nullptr,
  };
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
