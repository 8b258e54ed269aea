#pragma once

#include <cstdint>

#include "kernels/stream.h"

namespace troupe::kernels {

/// One pool of a layer's cache: [block][block_size][row] of a KV type.
struct KvPool {
  void* base = nullptr;
  DType dtype = DType::kBf16;  ///< kBf16, kF32 (reference), kF8E4M3 (scale 1, saturating)
  std::int64_t block_size = 0;
  std::int64_t row = 0;  ///< numbers a position
};

/// Where the sequence of each row lies: position p is slot p % block_size of block
/// tables[row][p / block_size]. Rows of one sequence follow each other and share the pointer.
struct PagedRows {
  const std::int32_t* const* tables = nullptr;  ///< [rows]
  const std::int32_t* positions = nullptr;      ///< [rows]
};

/// Writes x [rows, d] float32 into columns [first, first + d) of the rows' slots, rounded to the
/// pool's type.
void store_kv(Stream& stream, const KvPool& pool, const PagedRows& where, const Tensor& x,
              std::int64_t first = 0);

struct AttentionInputs {
  KvPool keys;    ///< key head h: columns [h * q.dim, (h + 1) * q.dim)
  KvPool values;  ///< value head h: columns [h * out.dim, (h + 1) * out.dim)
  std::int64_t kv_heads = 1;     ///< divides the query heads: head i reads i / (heads / kv_heads)
  float scale = 1;               ///< multiplies the scores
  std::int64_t window = 0;       ///< position p is visible to row at t if t - p < window; 0: all
  const float* sinks = nullptr;  ///< [heads] a logit more in each softmax, then dropped; null: none
};

/// out = softmax(scale q K^T) V over positions 0..positions[row], for every row and head.
/// q [rows, heads, k_dim], out [rows, heads, v_dim], float32.
///
/// Grouped queries (arXiv 2305.13245), and MLA in its absorbed form (arXiv 2405.04434, sec. 2.1),
/// where there is one head of keys [latent | rotary], whose latent part is the values too.
/// The context is reduced in tiles at absolute positions (kernels/README.md), so a row's result
/// depends on its position and the cached values only. Slots of all visible positions must have
/// been stored before. Moves (position + 1) * (k_dim + v_dim) numbers per row and head of keys.
void attention(Stream& stream, const AttentionInputs& in, const PagedRows& where, const Tensor& q,
               const Tensor& out);

}  // namespace troupe::kernels
