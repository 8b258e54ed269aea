#pragma once

// After a family's simd.h, lanes_math.h and attention_panels.h.

#include "kernels/scalar_math.h"

namespace troupe::kernels {
namespace {

using cpu::kBlock;
using cpu::kTile;
using cpu::PartialSoftmax;
using cpu::TileWork;

/// Positions of a tile, counted from its first.
struct Span {
  std::int32_t first = kTile, last = 0;

  bool empty() const { return first >= last; }
  bool meets(std::int32_t from, std::int32_t to) const { return first < to && from < last; }
  /// In whole blocks.
  Span blocks() const {
    if (empty()) return {0, 0};
    return {first / kBlock * kBlock, (last + kBlock - 1) / kBlock * kBlock};
  }
};

inline Span seen_by(const TileWork& w, std::int64_t i) {
  const std::int32_t first = w.from[i] - w.first, last = w.to[i] - w.first;
  return {first > 0 ? first : 0, last < kTile ? last : kTile};
}

/// What any of queries [i, i + count) sees.
inline Span seen_by(const TileWork& w, std::int64_t i, std::int64_t count) {
  Span all_of;
  for (std::int64_t j = i; j < i + count; ++j) {
    const Span one = seen_by(w, j);
    if (one.empty()) continue;
    all_of.first = one.first < all_of.first ? one.first : all_of.first;
    all_of.last = one.last > all_of.last ? one.last : all_of.last;
  }
  return all_of;
}

/// Whether a value that some queries see and others do not would spoil those that do not.
inline bool needs_masks(const TileWork& w, Span seen) {
  std::int32_t first = 0, last = kTile;  // what all see that see anything
  for (std::int64_t i = 0; i < w.queries; ++i) {
    const Span one = seen_by(w, i);
    if (one.empty()) continue;
    first = one.first > first ? one.first : first;
    last = one.last < last ? one.last : last;
  }
  for (std::int32_t p = seen.first; p < seen.last; ++p)
    if ((p < first || p >= last) && has_infinite(w.values[p], w.dtype, w.v_dim)) return true;
  return false;
}

/// scores[i][p] = q_i . k_p for all p that query i sees, and some others.
template <class Products>
void score_tile(Products& products, const TileWork& w, Span seen) {
  const std::int64_t bytes = Products::query_bytes(w.k_dim);
  const std::int64_t k_end = (w.k_dim + kBlock - 1) / kBlock * kBlock;
  for (std::int32_t p = seen.first / kWidth * kWidth; p < seen.last; p += kWidth) {
    for (std::int64_t k = 0; k < k_end; k += Products::kStretch) {
      const std::int64_t count = k_end - k < Products::kStretch ? k_end - k : Products::kStretch;
      Products::key_panel(w.keys + p, w.shared ? nullptr : w.values + p, w.dtype, w.k_dim, k,
                          count, w.room);
      for (std::int64_t i = 0; i < w.queries; i += Products::kRows) {
        const std::int64_t rows = w.queries - i < Products::kRows ? w.queries - i : Products::kRows;
        if (!seen_by(w, i, rows).meets(p, p + kWidth)) continue;
        constexpr auto kSize = static_cast<std::int64_t>(sizeof(typename Products::Number));
        products.product(w.q + i * bytes + k * kSize, bytes, rows, w.room, count / kBlock,
                         w.scores + i * kTile + p, kTile, k > 0);
      }
    }
  }
}

/// The product of the weights with ones.
template <bool kOneChain>
float sum_weights(const float* p, std::int32_t count) {
  float sum = 0;
  for (std::int32_t block = 0; block < count; block += kBlock) {
    float even = 0, odd = 0;
#pragma GCC unroll 16
    for (int j = 0; j < kBlock; j += 2) {
      if constexpr (kOneChain) even = even + p[block + j + 1] + p[block + j];
      else even += p[block + j], odd += p[block + j + 1];
    }
    sum += even + odd;
  }
  return sum;
}

/// Query i's scores become weights in the blocks of `seen`; zeros where it does not see.
template <class Products>
void weigh(const TileWork& w, std::int64_t i, Span seen) {
  const Span own = seen_by(w, i), blocks = seen.blocks();
  float* s = w.scores + i * kTile;
  I32 lane;
  for (int j = 0; j < kLanes; ++j) lane[j] = j;
  const F32 scale = all(w.scale), lowest = all(-__builtin_inff());
  F32 m = lowest;
  for (std::int32_t p = blocks.first; p < blocks.last; p += kLanes) {
    const I32 at = lane + all(p);
    const F32 x = (at >= all(own.first)) & (at < all(own.last)) ? load(s + p) * scale : lowest;
    save(s + p, x);
    m = larger(m, x);
  }
  const float highest = largest(m);
  const F32 top = all(highest);
  for (std::int32_t p = blocks.first; p < blocks.last; p += kLanes) {
    const I32 at = lane + all(p);
    const F32 x = bf(exp_lanes(load(s + p) - top));
    save(s + p, (at >= all(own.first)) & (at < all(own.last)) ? x : all(0.0f));
  }
  w.to_write.max[i] = highest;
  w.to_write.sum[i] =
      own.empty() ? 0
                  : sum_weights<Products::kOneChain>(s + blocks.first, blocks.last - blocks.first);
  Products::keep_weights(s, blocks.first, blocks.last);
}

/// out[i] = sum of weight times value, for queries [first, last) and the values of `rows`.
template <class Products>
void add_values(Products& products, const TileWork& w, std::int64_t first, std::int64_t last,
                const std::byte* const* rows, Span seen) {
  const Span all_of = seen.blocks();
  for (std::int64_t at = 0; at < w.v_dim; at += kWidth) {
    const std::int64_t width = w.v_dim - at < kWidth ? w.v_dim - at : kWidth;
    Products::value_panel(rows + all_of.first, w.keys + kTile + all_of.first, w.dtype, w.v_dim, at,
                          all_of.last - all_of.first, w.room);
    for (std::int64_t i = first; i < last; i += Products::kRows) {
      const std::int64_t count = last - i < Products::kRows ? last - i : Products::kRows;
      const Span own = seen_by(w, i, count).blocks();
      if (own.empty()) continue;
      alignas(64) float ragged[Products::kRows * kWidth];
      float* out = w.to_write.out + i * w.v_dim + at;
      constexpr auto kSize = static_cast<std::int64_t>(sizeof(typename Products::Number));
      const bool whole = width == kWidth;
      products.product(reinterpret_cast<const std::byte*>(w.scores + i * kTile) + own.first * kSize,
                       kTile * 4, count, w.room + (own.first - all_of.first) * kWidth * kSize,
                       (own.last - own.first) / kBlock, whole ? out : ragged,
                       whole ? w.v_dim : kWidth, false);
      if (whole) continue;
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t j = 0; j < width; ++j) out[r * w.v_dim + j] = ragged[r * kWidth + j];
    }
  }
}

template <class Products>
void attention_tile(const TileWork& w) {
  Products products;
  const Span seen = seen_by(w, 0, w.queries);
  if (!seen.empty()) score_tile(products, w, seen);
  for (std::int64_t i = 0; i < w.queries; ++i) weigh<Products>(w, i, seen);
  if (seen.empty()) return;
  if (!needs_masks(w, seen)) return add_values(products, w, 0, w.queries, w.values, seen);
  for (std::int64_t i = 0; i < w.queries; ++i) {
    const Span own = seen_by(w, i);
    const std::byte* rows[kTile];
    for (std::int32_t p = 0; p < kTile; ++p)
      rows[p] = p >= own.first && p < own.last ? w.values[p] : w.zeros;
    if (!own.empty()) add_values(products, w, i, i + 1, rows, own);
  }
}

inline void fold_partial(const PartialSoftmax& into, const PartialSoftmax& next,
                         std::int64_t queries, std::int64_t v_dim) {
  for (std::int64_t i = 0; i < queries; ++i) {
    if (next.sum[i] == 0) continue;
    const bool fresh = into.sum[i] == 0;
    const float a = into.max[i], b = next.max[i], top = fresh || !(a > b) ? b : a;
    const float x = fresh ? 1.0f : exp_f32(b - top), y = fresh ? 0.0f : exp_f32(a - top);
    into.max[i] = top;
    into.sum[i] = fresh ? next.sum[i] : __builtin_fmaf(next.sum[i], x, into.sum[i] * y);
    float* out = into.out + i * v_dim;
    const float* add = next.out == nullptr ? nullptr : next.out + i * v_dim;
    for (std::int64_t d = 0; d < v_dim; ++d) {
      const float value = add == nullptr ? 0.0f : add[d];
      out[d] = fresh ? value : __builtin_fmaf(value, x, out[d] * y);
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
