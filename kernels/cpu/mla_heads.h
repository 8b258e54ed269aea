#pragma once

#include <cstddef>
#include <cstdint>

/// The contract between the generic part of `mla_attention` and the families' inner kernels.
/// Included by translation units with wide instructions: plain data only, nothing inline.
namespace troupe::kernels::cpu {

/// Heads that one inner call works on together.
inline constexpr std::size_t kMlaHeads = 16;

/// Some heads of one row over its whole context.
struct MlaHeads {
  const void* cache = nullptr;          ///< the layer's pool
  std::size_t slot_bytes = 0;           ///< of one slot
  std::size_t block_size = 0;           ///< slots of a block
  const std::int32_t* table = nullptr;  ///< the row's blocks
  std::int32_t position = 0;
  std::size_t kv_lora = 0, rope = 0;

  std::size_t heads = 0;           ///< 1..kMlaHeads
  const float* latent = nullptr;   ///< q_latent of the first head
  std::size_t latent_stride = 0;   ///< floats to the next head
  const float* rotary = nullptr;   ///< q_rope of the first head
  std::size_t rotary_stride = 0;
  float scale = 1;
  float* out = nullptr;
  std::size_t out_stride = 0;
  std::byte* room = nullptr;  ///< mla_room_bytes of the thread
};

/// Scratch that one inner call needs.
constexpr std::size_t mla_room_bytes(std::size_t kv_lora, std::size_t rope) {
  return kMlaHeads * (kv_lora + 2 * (kv_lora + rope) + 256) * sizeof(float);
}

void mla_heads_reference(const MlaHeads& h);    ///< cache of float32; plain sums
void mla_heads_avx2(const MlaHeads& h);         ///< cache of bf16; float32 queries and weights
void mla_heads_avx512_bf16(const MlaHeads& h);  ///< cache and queries of bf16; float32 weights

}  // namespace troupe::kernels::cpu
