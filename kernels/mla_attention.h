#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/matrix.h"
#include "runtime/numerics.h"

namespace troupe::kernels {

/// One layer's latent cache: [block][block_size][kv_lora + rope] in the wire type of the numerics.
/// A slot holds the normalised latent c_kv, then the shared rotary key (already turned).
struct LatentCache {
  void* base = nullptr;
  WireType type = WireType::kBf16;
  std::size_t block_size = 0;
  std::size_t kv_lora = 0, rope = 0;

  std::size_t slot_bytes() const { return (kv_lora + rope) * wire_size(type); }
};

/// Where the sequence of each row lies: position p is slot p % block_size of block
/// tables[row][p / block_size].
struct PagedRows {
  const std::int32_t* const* tables = nullptr;  ///< [rows]
  const std::int32_t* positions = nullptr;      ///< [rows]
};

/// Writes latent [rows, kv_lora] and rope [rows, rope] into the slots of the rows' positions,
/// rounded to the cache's type.
void store_latent(const Context& ctx, const LatentCache& cache, const PagedRows& where,
                  ConstRows latent, ConstRows rope);

struct MlaQueries {
  ConstHeads latent;  ///< [rows, heads, kv_lora]: q_nope absorbed through W_UK
  ConstHeads rope;    ///< [rows, heads, rope]: the rotary part, turned
  float scale = 1;    ///< multiplies the scores
};

/// Multi-head latent attention in its absorbed form (DeepSeek-V2, arXiv 2405.04434, sec. 2.1):
///   s_p = scale * (q_latent . c_p + q_rope . r_p),  out = sum_p softmax(s)_p c_p
/// over positions 0..positions[row], for every row and head. out [rows, heads, kv_lora].
///
/// The context is reduced in chunks of limits::kAttentionChunk absolute positions, merged one after
/// the other with an online softmax, so a row's result depends on its position and the cached
/// values only. The slots of all attended positions must have been stored before.
/// Moves (position + 1) * slot_bytes per row and group of heads.
void mla_attention(const Context& ctx, const LatentCache& cache, const PagedRows& where,
                   const MlaQueries& queries, Heads out);

}  // namespace troupe::kernels
