#pragma once

#include "kernels/attention.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cuda/each.h"
#include "kernels/cuda/paged.h"

/// What both kernels of attention share: the units of work, and how their parts are joined.
namespace troupe::kernels::TROUPE_CUDA_SPACE {

using cpu::kPart;
using cpu::kTile;

/// An attention call, as kernels see it.
struct AttentionCall {
  KvPool keys, values;
  std::int64_t kv_heads = 1;
  float scale = 1;
  std::int64_t window = 0;
  const float* sinks = nullptr;
  PagedRows where;
  Tensor q, out;

  DEVICE std::int64_t group() const { return q.heads / kv_heads; }
  /// A row sees positions [from, to).
  DEVICE std::int32_t to(std::int64_t row) const { return where.positions[row] + 1; }
  DEVICE std::int32_t from(std::int64_t row) const {
    const std::int64_t first = to(row) - window;
    return window == 0 || first < 0 ? 0 : static_cast<std::int32_t>(first);
  }
};

/// Queries that share a sequence and a head of keys: pairs (row, head), by row, then by head.
struct AttentionUnit {
  std::int64_t row = 0;  ///< the first of the sequence's rows in the call
  std::int64_t kv_head = 0;
  std::int64_t first = 0;  ///< of the sequence's pairs
  std::int32_t count = 0;
  std::int32_t from = 0, to = 0;  ///< what any of them sees
  std::int32_t pieces = 0;        ///< parts of 1,024 that it sees something of
  std::int64_t piece = 0;         ///< the first of them among all

  DEVICE std::int64_t row_of(const AttentionCall& c, int i) const {
    return row + (first + i) / c.group();
  }
  DEVICE std::int64_t head_of(const AttentionCall& c, int i) const {
    return kv_head * c.group() + (first + i) % c.group();
  }
};

/// A part of 1,024 positions of a unit.
struct AttentionPiece {
  std::int64_t unit = 0;
  std::int32_t first = 0;
};

/// Softmax-weighted sums that are not divided yet, of each piece and query: [pieces, queries].
/// Where `sum` is 0 nothing was seen.
struct AttentionPartials {
  float* out = nullptr;  ///< [pieces, queries, v_dim]
  float* max = nullptr;
  float* sum = nullptr;
  std::int64_t queries = 0;

  static AttentionPartials room(Stream& stream, std::int64_t pieces, std::int64_t queries,
                                std::int64_t v_dim);
};

/// Cuts a call into units of up to `queries`, and calls body(units, pieces, counts of both) with as
/// many at a time as may wait for being joined; `units` and `pieces` are in reach of the device.
struct AttentionWork {
  const AttentionUnit* units = nullptr;
  const AttentionPiece* pieces = nullptr;
  std::int64_t unit_count = 0, piece_count = 0;
  AttentionPartials partials;
};
using ComputeParts = void(Stream&, const AttentionCall&, const AttentionWork&);

/// The whole op: `parts` fills the partials of `queries` queries a unit, which are joined here.
void attention_by(ComputeParts* parts, std::int64_t queries, Stream& stream,
                  const AttentionInputs& in, const PagedRows& where, const Tensor& q,
                  const Tensor& out);

/// The i-th number of a row of the cache.
DEVICE float kv_number(const void* row, DType dtype, std::int64_t i) {
  if (dtype == DType::kF8E4M3) return e4m3_to_float(static_cast<const std::uint8_t*>(row)[i]);
  return to_float(Bf16{static_cast<const std::uint16_t*>(row)[i]});
}

/// Where a slot's row begins, from `column` on.
DEVICE const std::byte* kv_slot(const KvPool& pool, std::int64_t slot, std::int64_t column) {
  const std::int64_t size = pool.dtype == DType::kF8E4M3 ? 1 : 2;
  return static_cast<const std::byte*>(pool.base) + (slot * pool.row + column) * size;
}
DEVICE const std::byte* kv_row(const KvPool& pool, const std::int32_t* table, std::int32_t position,
                               std::int64_t column) {
  return kv_slot(pool, slot_of(pool, table, position), column);
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
