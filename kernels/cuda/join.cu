#include "kernels/join.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"
#include "runtime/limits.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// Bytes, a number: 4 of every part are read and 4 written. Operations: an addition less than there
/// are parts, one more with a bias. Bound by memory.
struct JoinNumber {
  const float* parts[limits::kSumSlices];
  int count;
  const float* bias;
  Tensor y;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    float sums[limits::kSumSlices];
#pragma unroll
    for (int p = 0; p < limits::kSumSlices; ++p)
      sums[p] = p < count ? parts[p][row * y.dim + col] : 0.0f;
#pragma unroll
    for (int left = limits::kSumSlices; left > 1; left /= 2)
#pragma unroll
      for (int p = 0; p < left / 2; ++p)
        if (left <= count) sums[p] = sums[2 * p] + sums[2 * p + 1];
    head_at<float>(y, row)[col] = bias == nullptr ? sums[0] : sums[0] + bias[col];
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::join(Stream& stream, std::span<const float* const> parts,
                             const float* bias, const Tensor& y) {
  assert(parts.size() <= limits::kSumSlices);
  JoinNumber body{{}, static_cast<int>(parts.size()), bias, y};
  for (std::size_t p = 0; p < parts.size(); ++p) body.parts[p] = parts[p];
  each_number(stream, y.rows, y.cols(), body);
}

}  // namespace troupe::kernels
