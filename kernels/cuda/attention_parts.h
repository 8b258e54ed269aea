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

  DEVICE std::int32_t group() const { return static_cast<std::int32_t>(q.heads / kv_heads); }
  /// A row sees positions [from, to).
  DEVICE std::int32_t to(std::int64_t row) const { return where.positions[row] + 1; }
  DEVICE std::int32_t from(std::int64_t row) const {
    const std::int64_t first = to(row) - window;
    return window == 0 || first < 0 ? 0 : static_cast<std::int32_t>(first);
  }
};

/// Queries that share a sequence and a head of keys: pairs (row, head), by row, then by head.
struct AttentionUnit {
  std::int32_t row = 0;  ///< the first of the sequence's rows in the call
  std::int32_t kv_head = 0;
  std::int32_t first = 0, count = 0;  ///< of the sequence's pairs
  std::int32_t from = 0, to = 0;          ///< what any of them sees
  std::int32_t all_from = 0, all_to = 0;  ///< what all of them see: not in order if nothing
  std::int32_t pieces = 0;   ///< that wait for being joined; 0: its one piece is all
  std::int64_t partial = 0;  ///< of its first piece and query: [pieces, count]

  DEVICE std::int32_t row_of(const AttentionCall& c, int i) const {
    return row + (first + i) / c.group();
  }
  DEVICE std::int32_t head_of(const AttentionCall& c, int i) const {
    return kv_head * c.group() + (first + i) % c.group();
  }
  DEVICE bool sees_all(std::int32_t begin, std::int32_t end) const {
    return all_from <= begin && end <= all_to;
  }
  DEVICE float* out_of(const AttentionCall& c, int i) const {
    return head_at<float>(c.out, row_of(c, i), head_of(c, i));
  }
};

/// Parts of 1,024 positions of a unit, one after the other: each is folded into what is before it.
/// Only a unit's first piece has several, since parts are folded from the left.
struct AttentionPiece {
  std::int64_t unit = 0;
  std::int32_t first = 0, parts = 1;
  std::int64_t partial = 0;  ///< of its first query
  bool whole = false;        ///< all that the unit sees: there is no partial, but the result
};

/// The maximum and the sum of a softmax, from the left. Of nothing the sum is 0, and only of that:
/// the largest weight is 1.
struct SoftmaxFold {
  /// What is folded in is multiplied by `next`, and what is there by `before`.
  struct Factors {
    float next = 1, before = 0;
  };

  float max = 0, sum = 0;
  bool fresh = true;  ///< nothing has been folded in

  DEVICE static SoftmaxFold of(float max, float sum) {
    SoftmaxFold fold;
    fold.max = max;
    fold.sum = sum;
    fold.fresh = sum == 0;
    return fold;
  }
  DEVICE Factors add(float next_max, float next_sum) {
    const float m = max > next_max ? max : next_max;
    Factors f;
    if (!fresh) f = {exp_f32(next_max - m), exp_f32(max - m)};
    sum = fresh ? next_sum : fma_f32(next_sum, f.next, sum * f.before);
    max = fresh ? next_max : m;
    fresh = false;
    return f;
  }
};

/// What a result is multiplied with at last, one after the other.
struct AttentionEnd {
  float sink = 1, inverse = 1;

  /// A sink is a last part whose values are zero.
  DEVICE static AttentionEnd of(const AttentionCall& call, std::int64_t head, SoftmaxFold fold) {
    AttentionEnd end;
    if (call.sinks != nullptr) end.sink = fold.add(call.sinks[head], 1).before;
    end.inverse = 1.0f / fold.sum;
    return end;
  }
};

/// Softmax-weighted sums that are not divided yet. Where `sum` is 0 nothing was seen.
struct AttentionPartials {
  float* out = nullptr;  ///< [partials, v_dim]
  float* max = nullptr;
  float* sum = nullptr;

  static AttentionPartials room(Stream& stream, std::int64_t count, std::int64_t v_dim);
};

/// Some units and their pieces, in reach of the device.
struct AttentionWork {
  const AttentionUnit* units = nullptr;
  const AttentionPiece* pieces = nullptr;
  std::int64_t unit_count = 0, piece_count = 0;
  AttentionPartials partials;
};

/// What computes pieces, a CTA each.
struct AttentionKernel {
  void (*compute)(Stream&, const AttentionCall&, const AttentionWork&);
  std::int64_t queries;  ///< of a unit, at most
  bool folds;            ///< takes pieces of several parts
};

/// The whole op. Where there are more parts than a GPU has CTAs at a time, a unit's first parts are
/// a piece, so that less is stored and joined; the bits are the same.
void attention_by(const AttentionKernel& kernel, Stream& stream, const AttentionInputs& in,
                  const PagedRows& where, const Tensor& q, const Tensor& out);

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
