#include "kernels/cuda/each.h"
#include "kernels/cuda/gated_act.h"
#include "kernels/cuda/product.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

/// Beside the rows, the words are cleared that CTAs of the products come to.
///
/// Bytes, a number: 4 are read (2 of bf16, 8 of halves) and 2 written, 4 with full precision.
/// Operations: the rounding, and of halves the activation function's exp and division. Bound by
/// memory, or by the launch.
struct PrepareNumber {
  RowsToPrepare x;
  PreparedRows to;

  /// `row` counts over all groups.
  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    if (row == 0)
      for (std::int64_t i = col; i < kCameWords; i += (to.row_bytes - to.low_bytes) / 2)
        to.came[i] = 0;
    const std::int64_t within = col % to.padded_k;
    std::uint16_t upper = 0, lower = 0;
    if (within < to.slice_k) {
      const std::int64_t group = row / x.count, i = row % x.count;
      const std::byte* from =
          x.rows != nullptr ? x.rows[row] : x.data + group * x.group_bytes + i * x.row_bytes;
      const std::int64_t k = col / to.padded_k * to.slice_k + within;
      float value = load_number(from, x.bf16 ? DType::kBf16 : DType::kF32, k);
      if (x.up_at > 0) value = gated_act(x.act, value, load_number(from, DType::kF32, x.up_at + k));
      upper = to_bf16(value).bits;
      lower = to_bf16(value - bf(value)).bits;
    }
    std::byte* there = to.data + row * to.row_bytes;
    reinterpret_cast<std::uint16_t*>(there)[col] = upper;
    if (to.low_bytes > 0) reinterpret_cast<std::uint16_t*>(there + to.low_bytes)[col] = lower;
  }
};

}  // namespace

PreparedRows PreparedRows::room(Stream& stream, const Weight& weight, const WeightLayout& layout,
                                std::int64_t rows) {
  PreparedRows p;
  p.slice_k = layout.slice_k;
  p.padded_k = layout.blocks * WeightLayout::kBlock;
  const std::int64_t bytes = layout.slices * p.padded_k * 2;
  p.low_bytes = weight.full_precision() ? bytes : 0;
  p.row_bytes = bytes + p.low_bytes;
  p.came = stream.scratch().take<std::uint32_t>(kCameWords);
  p.data = stream.scratch().take<std::byte>(static_cast<std::size_t>(rows * p.row_bytes));
  return p;
}

void prepare_rows(Stream& stream, const RowsToPrepare& x, const PreparedRows& to) {
  const std::int64_t numbers = (to.row_bytes - to.low_bytes) / 2;
  each_number(stream, x.count * x.groups, numbers, PrepareNumber{x, to});
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
