#pragma once

#include "kernels/cpu/weight_layout.h"
#include "kernels/stream.h"

/// The contract between `linear` and `gated_mlp` and the families' inner kernels. Included by files
/// with wide instructions: plain data only.
namespace troupe::kernels::cpu {

/// Where a job's results go: rows at a stride, or each at its own place.
struct ProductOutput {
  std::byte* data = nullptr;
  std::int64_t row_bytes = 0;
  std::byte* const* rows = nullptr;  ///< not null: instead of the two above
  bool bf16 = false;                 ///< rounded, else float32
};

/// y[r][outputs of panels first..last) = x[r] . W + bias for every row.
struct ProductJob {
  const WeightLayout* layout = nullptr;
  const std::byte* panels = nullptr;  ///< the group's first
  std::int64_t first = 0, last = 0;
  /// Prepared rows. Full precision: every row's lower part is `low_bytes` after its upper one.
  const std::byte* x = nullptr;
  std::int64_t rows = 0, row_bytes = 0, low_bytes = 0;
  ProductOutput y;
  const float* bias = nullptr;
  std::byte* room = nullptr;  ///< kProductRoom bytes on a boundary of 64
};

inline constexpr std::int64_t kProductRows = 128;  ///< that share a pass over the weights
inline constexpr std::int64_t kProductSums = 8;    ///< panels by partial sums that are in the room
inline constexpr std::int64_t kStretch = 8;        ///< blocks of k that stay in the nearest cache
inline constexpr std::size_t kProductRoom =
    static_cast<std::size_t>(kProductSums * kProductRows * WeightLayout::kOutputs * 4 +
                             kStretch * WeightLayout::kBlock * WeightLayout::kOutputs * 4);

/// One family's part of the products.
struct ProductKernels {
  void (*run)(const ProductJob& job) = nullptr;
  /// `count` elements of x, bf16 or float32, as activations; `low_bytes` not 0: what rounding left
  /// goes that far behind.
  void (*put)(const void* x, bool bf16, std::int64_t count, std::byte* out,
              std::int64_t low_bytes) = nullptr;
  std::int64_t element_bytes = 4;  ///< of an activation
  bool splits = true;              ///< full precision has two parts
};

const ProductKernels& products_reference();
const ProductKernels& products_avx2();
const ProductKernels& products_avx512();
const ProductKernels& products_amx();
const ProductKernels& products_dot();  ///< of `avx512_bf16`

inline const ProductKernels& product_kernels(const Stream& stream) {
  if (stream.numerics() == Numerics::kReference) return products_reference();
  if (sums_in_one_chain(stream.numerics())) return products_dot();
  switch (stream.family()) {
    case CpuFamily::kBaseline: break;
    case CpuFamily::kAvx2: return products_avx2();
    case CpuFamily::kAvx512: return products_avx512();
    case CpuFamily::kAmx: return products_amx();
  }
  assert(!"the baseline computes `reference` only");
  return products_reference();
}

}  // namespace troupe::kernels::cpu
