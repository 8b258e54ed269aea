#pragma once

#include "kernels/cpu/weight_layout.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/product_room.h"
#include "kernels/linear.h"
#include "kernels/silu_mul.h"

/// What `linear`, `gated_mlp` and `expert_mlp` share: rows by panels.
namespace troupe::kernels::TROUPE_CUDA_SPACE {

/// Up to rows_at_once() prepared rows and a matrix.
struct ProductItem {
  const std::byte* panels = nullptr;
  const std::byte* x = nullptr;
  const float* bias = nullptr;
  std::byte* y = nullptr;              ///< the first row's output, or
  std::byte* const* y_rows = nullptr;  ///< the outputs of each row
  std::int32_t rows = 0;
};

/// Items that need no list: `rows` rows by one matrix, or each by two, in each group.
struct EvenItems {
  const std::byte* panels[2] = {};
  const float* bias[2] = {};
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  std::int64_t x_group_bytes = 0, y_group_bytes = 0, y_matrix_bytes = 0;
  std::int32_t matrices = 1, groups = 1, rows = 0, at_once = 1;
};

/// CTAs that fill a GPU: two on each of an H100's 132 multiprocessors.
inline constexpr std::int64_t kFullCtas = 264;
/// Words to come to that a launch needs at most: fewer than two CTAs share nothing.
inline constexpr std::int64_t kCameWords = kFullCtas / 2;

/// Products with matrices of one layout, of which any number may be listed by the device.
struct Products {
  WeightLayout layout;
  const ProductItem* items = nullptr;  ///< the device's; null: those of `even`
  EvenItems even;
  std::int64_t count = 0;
  const std::int32_t* listed = nullptr;     ///< the device's: how many of them are; null: all
  std::int32_t rows_max = 0;                ///< of an item
  std::int64_t x_bytes = 0, low_bytes = 0;  ///< from a row to the next, and to its lower part
  std::int64_t y_bytes = 0;                 ///< from a row to the next
  bool y_bf16 = false;
  /// 1; with full precision the lower part of x is one more, that of w another.
  int terms = 1;
  /// kCameWords zeros, for CTAs that share a panel (Cta::last_of); null: none do.
  std::uint32_t* came = nullptr;
  std::int64_t full_ctas = kFullCtas;  ///< at most kFullCtas

  /// How many CTAs share k of an item and a panel, where that is cut into so many pieces, each of
  /// which leaves so many bytes of sums for the last of them: one if those that there are without
  /// it fill a GPU, or if the sums would take too much. No bit depends on it.
  std::int64_t sharers(std::int64_t pieces, std::int64_t piece_bytes,
                       std::int64_t panels_of_cta = 1) const {
    const std::int64_t alone = count * ceil_div(layout.panels, panels_of_cta);
    const bool fits = alone * pieces * piece_bytes <= shared_sums_bytes(layout.k);
    if (came == nullptr || alone == 0 || !fits) return 1;
    const std::int64_t wanted = std::clamp<std::int64_t>(full_ctas / alone, 1, pieces);
    return ceil_div(pieces, ceil_div(pieces, wanted));  // each has some
  }

  /// All of `items`, whose `at_once` is set here.
  void take(EvenItems items, std::int64_t at_once) {
    items.at_once = static_cast<std::int32_t>(at_once);
    even = items;
    rows_max = std::min(items.at_once, items.rows);
    count = std::int64_t{items.groups} * items.matrices * ceil_div(items.rows, at_once);
  }
};

inline constexpr int kProductRows = 8;      ///< that weights are read once for
inline constexpr int kMmaProductRows = 32;  ///< the same, by tensor cores
inline constexpr int kMmaStretch = 8;       ///< blocks whose sum begins at zero

/// Rows of an item with these numerics.
constexpr std::int64_t rows_at_once(Numerics numerics, int terms) {
  return (by_tensor_cores(numerics) ? kMmaProductRows : kProductRows) / terms;
}

/// What linear() is: rows by one matrix, or by one in each group.
Products linear_products(Numerics numerics, const Weight& weight, const Activation& x,
                         const Tensor& y, const float* bias);

/// A thread an output, k after k: what the other is compared with.
void plain_products(Stream& stream, const Products& products);
/// The same bits, sixteen bytes at a time; those of `cuda_mma` by tensor cores.
void fast_products(Stream& stream, const Products& products);
void mma_products(Stream& stream, const Products& products);

/// How rows come, and how products want them: bf16, padded by zeros behind each slice.
struct RowsToPrepare {
  const std::byte* data = nullptr;
  std::int64_t row_bytes = 0, group_bytes = 0;
  const std::byte* const* rows = nullptr;  ///< not null: instead of the three above
  bool bf16 = false;
  std::int64_t count = 0, groups = 1;
  // Behind a row of gate numbers as many of `up`: what is prepared is act(gate, up).
  std::int64_t up_at = 0;  ///< 0: nothing is there
  GatedAct act;

  /// [count, 2, inner] float32.
  static RowsToPrepare halves(GatedAct act, const std::byte* data, std::int64_t inner,
                              std::int64_t count) {
    RowsToPrepare rows;
    rows.data = data;
    rows.row_bytes = 2 * inner * 4;
    rows.count = count;
    rows.up_at = inner;
    rows.act = act;
    return rows;
  }
};

/// How prepared rows lie: [groups][rows] of row_bytes.
struct PreparedRows {
  std::byte* data = nullptr;
  std::int64_t row_bytes = 0, low_bytes = 0;
  std::int64_t slice_k = 0, padded_k = 0;  ///< of a slice
  std::uint32_t* came = nullptr;           ///< of the products that follow

  /// In the stream's scratch.
  static PreparedRows room(Stream& stream, const Weight& weight, const WeightLayout& layout,
                           std::int64_t rows);
};

void prepare_rows(Stream& stream, const RowsToPrepare& x, const PreparedRows& to);

inline int terms_of(const Weight& weight, const WeightLayout& layout) {
  return weight.full_precision() ? 1 + layout.parts : 1;
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
