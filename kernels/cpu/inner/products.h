#pragma once

#include <cstring>

#include "kernels/cpu/products.h"
#include "kernels/cpu/weight_decode.h"

/// How every family goes through a job. A family brings a `Kernel`:
///
///     kElementBytes                            of an activation
///     kRowsAtOnce                              that tiles are read once for
///     kRowsInOrder                             as few read weights as they lie, byte after byte
///     kCodeRows                                as few rows may multiply codes as they are read
///     code_rows(layout)                        as few do: where that is faster
///     held(layout)                             whether tiles can be multiplied as they lie
///     expand(layout, panel, block, count, out) blocks of a panel as tiles
///     multiply(stretch)                        adds blocks to sums
///     multiply_codes(layout, panel, block, s)  the same, of codes
namespace troupe::kernels::cpu {
namespace {

/// Some rows by some blocks of a panel: c[r][0..31] += P of each block, ascending.
struct Stretch {
  const std::byte* x = nullptr;
  std::int64_t x_bytes = 0, rows = 0;  ///< x_bytes: from row to row
  const std::byte* w = nullptr;
  std::int64_t blocks = 0;
  float* c = nullptr;  ///< [rows][32]
  bool begin = false;  ///< the sums start at +0
  /// What memory is to be asked for meanwhile, `ahead_bytes` a block: the stream goes on there.
  const std::byte* ahead = nullptr;
  std::int64_t ahead_bytes = 0, ahead_step = 64;

  /// Of the i-th block.
  [[gnu::always_inline]] void ask_ahead(std::int64_t i) const {
    const std::byte* from = ahead + i * ahead_bytes;
    for (std::int64_t at = 0; at < ahead_bytes; at += ahead_step)
      __builtin_prefetch(from + at, 0, 2);
  }
};

TROUPE_INLINE void ask_for(const std::byte* bytes, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 64) __builtin_prefetch(bytes + i, 0, 2);
}

/// While the i-th of `count` blocks is expanded: that of the blocks behind them, its half.
TROUPE_INLINE void ask_for_next(const WeightLayout& l, const std::byte* panel, std::int64_t block,
                                std::int64_t count, std::int64_t i) {
  ask_for(panel + (2 * (block + count) + i) * l.block_bytes / 2, l.block_bytes / 2);
}

template <class Kernel>
class ProductPass {
 public:
  ProductPass(const ProductJob& job, Kernel& kernel)
      : job_(job), layout_(*job.layout), kernel_(kernel), full_(job.low_bytes > 0) {
    held_ = Kernel::held(layout_);
    levels_ = 1;
    for (int s = 1; s < layout_.slices; s *= 2) ++levels_;
    sums_ = reinterpret_cast<float*>(job.room);
    tiles_ = job.room + kProductSums * kSums * 4;
  }

  void run() {
    // With two parts of x and a third sum for the lower part of w, three rows of sums a row.
    const std::int64_t rows_max = full_ ? kProductRows / 3 : kProductRows;
    for (std::int64_t r = 0; r < job_.rows; r += rows_max) {
      first_row_ = r;
      rows_ = least(rows_max, job_.rows - r);
      const std::int64_t group = rows_ > kFewRows ? kProductSums / levels_ : 1;
      for (std::int64_t p = job_.first; p < job_.last; p += group)
        panels(p, least(group, job_.last - p));
    }
  }

 private:
  static constexpr std::int64_t kSums = kProductRows * WeightLayout::kOutputs;
  static constexpr std::int64_t kFewRows = 16;
  // Past a panel's end too. What is read in order the processor fetches itself, and every line
  // that it is asked for takes one of its few buffers from that (Zen 4, GB/s of one row and one
  // thread: 29 of 29 without asking or with every fourth line, 20 with every line); asked for far
  // ahead, it goes on across pages.
  static constexpr std::int64_t kAhead = 4096;
  static constexpr std::int64_t kAheadInOrder = 16384, kStepInOrder = 256;

  static std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  /// Sums of the panel `i` of those at hand.
  float* sums(std::int64_t i, int level) const { return sums_ + (i * levels_ + level) * kSums; }
  const std::byte* panel(std::int64_t p) const { return job_.panels + p * layout_.panel_bytes; }

  /// Some panels for the rows at hand: slice after slice, the tree as its leaves come.
  void panels(std::int64_t first, std::int64_t count) {
    int level = 0;
    for (int s = 0; s < layout_.slices; ++s) {
      slice(first, count, s, level);
      ++level;
      for (int t = s + 1; t % 2 == 0; t /= 2, --level)
        for (std::int64_t i = 0; i < count; ++i)
          add(sums(i, level - 2), sums(i, level - 1));
    }
    for (std::int64_t i = 0; i < count; ++i) store(first + i, sums(i, 0));
  }

  void add(float* left, const float* right) const {
    for (std::int64_t i = 0; i < rows_ * WeightLayout::kOutputs; ++i) left[i] += right[i];
  }

  void slice(std::int64_t first, std::int64_t count, int s, int level) {
    // Weights that lie ready are streamed when every row takes part at once.
    const std::int64_t rows = rows_ * (full_ ? 2 : 1);
    if constexpr (Kernel::kCodeRows > 0) codes_ = !held_ && rows <= Kernel::code_rows(layout_);
    const bool stream = codes_ || (held_ && rows <= Kernel::kRowsAtOnce);
    const std::int64_t step = stream ? layout_.blocks : kStretch;
    for (std::int64_t b = 0; b < layout_.blocks; b += step)
      for (std::int64_t i = 0; i < count; ++i)
        stretch(panel(first + i), s * layout_.blocks + b, least(step, layout_.blocks - b),
                sums(i, level), b == 0);
    if (full_)
      for (std::int64_t i = 0; i < count; ++i) join_parts(sums(i, level));
  }

  /// `block` counts from the panel's first slice.
  void stretch(const std::byte* panel, std::int64_t block, std::int64_t count, float* c,
               bool begin) {
    Stretch s;
    s.x = job_.x + first_row_ * job_.row_bytes +
          block * WeightLayout::kBlock * Kernel::kElementBytes;
    s.x_bytes = full_ ? job_.low_bytes : job_.row_bytes;
    s.rows = full_ ? 2 * rows_ : rows_;
    s.blocks = count;
    s.c = c;
    s.begin = begin;
    if (held_ || codes_) {
      s.w = panel + block * layout_.block_bytes;
      const bool in_order = s.rows <= Kernel::kRowsInOrder;
      s.ahead = s.w + (in_order ? kAheadInOrder : kAhead);
      s.ahead_bytes = layout_.block_bytes;
      if (in_order) s.ahead_step = kStepInOrder;
    } else {
      // Half of what comes next is asked for while this is expanded, half while it is multiplied.
      kernel_.expand(layout_, panel, block, count, tiles_);
      s.w = tiles_;
      s.ahead = panel + (2 * block + 3 * count) * layout_.block_bytes / 2;
      s.ahead_bytes = layout_.block_bytes / 2;
    }
    if constexpr (Kernel::kCodeRows > 0)
      if (codes_) return kernel_.multiply_codes(layout_, panel, block, s);
    kernel_.multiply(s);
    if (layout_.parts == 1) return;
    s.w += layout_.part_bytes;
    s.c += s.rows * WeightLayout::kOutputs;
    s.rows = rows_;
    s.x_bytes = job_.row_bytes;
    kernel_.multiply(s);
  }

  /// (P(h, w) + P(l, w)) + P(h, w_l)
  void join_parts(float* c) const {
    constexpr std::int64_t n = WeightLayout::kOutputs;
    const float* third = c + 2 * rows_ * n;
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t i = 0; i < n; ++i) {
        float sum = c[2 * r * n + i] + c[(2 * r + 1) * n + i];
        if (layout_.parts == 2) sum += third[r * n + i];
        c[r * n + i] = sum;
      }
  }

  void store(std::int64_t p, float* c) const {
    const std::int64_t first = p * WeightLayout::kOutputs;
    const std::int64_t count = least(WeightLayout::kOutputs, layout_.n - first);
    const ProductOutput& y = job_.y;
    for (std::int64_t r = 0; r < rows_; ++r, c += WeightLayout::kOutputs) {
      const std::int64_t row = first_row_ + r;
      std::byte* to = y.rows != nullptr ? y.rows[row] : y.data + row * y.row_bytes;
      if (job_.bias != nullptr)
        for (std::int64_t i = 0; i < count; ++i) c[i] += job_.bias[first + i];
      if (!y.bf16) {
        std::memcpy(to + first * 4, c, static_cast<std::size_t>(count) * 4);
        continue;
      }
      std::uint16_t rounded[WeightLayout::kOutputs];
      for (std::int64_t i = 0; i < WeightLayout::kOutputs; ++i) rounded[i] = to_bf16(c[i]).bits;
      std::memcpy(to + first * 2, rounded, static_cast<std::size_t>(count) * 2);
    }
  }

  const ProductJob& job_;
  const WeightLayout& layout_;
  Kernel& kernel_;
  const bool full_;
  bool held_, codes_ = false;
  int levels_;
  float* sums_;
  std::byte* tiles_;
  std::int64_t first_row_ = 0, rows_ = 0;
};

TROUPE_INLINE float load_element(const std::byte* x, bool bf16, std::int64_t i) {
  return number_at(x, bf16 ? DType::kBf16 : DType::kF32, i);
}

/// Activations as bf16.
template <bool kBf16>
TROUPE_INLINE void put_halves(const std::byte* x, std::int64_t count, std::uint16_t* out,
                              std::uint16_t* low) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = to_bf16(load_element(x, kBf16, i)).bits;
  if (low == nullptr) return;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = load_element(x, kBf16, i);
    low[i] = to_bf16(value - to_float(to_bf16(value))).bits;
  }
}

inline void put_pairs(const void* x, bool bf16, std::int64_t count, std::byte* out,
                      std::int64_t low_bytes) {
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = reinterpret_cast<std::uint16_t*>(out);
  auto* low = low_bytes > 0 ? reinterpret_cast<std::uint16_t*>(out + low_bytes) : nullptr;
  bf16 ? put_halves<true>(from, count, to, low) : put_halves<false>(from, count, to, low);
}

/// The same, widened.
template <bool kBf16>
TROUPE_INLINE void put_floats(const std::byte* x, std::int64_t count, float* out, float* low) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = to_float(to_bf16(load_element(x, kBf16, i)));
  if (low == nullptr) return;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = load_element(x, kBf16, i);
    low[i] = to_float(to_bf16(value - to_float(to_bf16(value))));
  }
}

}  // namespace
}  // namespace troupe::kernels::cpu
