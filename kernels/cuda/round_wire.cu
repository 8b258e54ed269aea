#include "kernels/round_wire.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// Bytes: 4 a number are read and 2 written, in bf16. Operations: the rounding. Bound by memory.
struct Round {
  Tensor x, y;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    const float value = head_at<const float>(x, row)[col];
    if (y.dtype == DType::kBf16)
      head_at<std::uint16_t>(y, row)[col] = to_bf16(value).bits;
    else
      head_at<float>(y, row)[col] = value;
  }
};

/// Bytes: 2 a number are read, in bf16, and 4 written. Operations: a shift. Bound by memory.
struct Widen {
  Tensor x, y;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    head_at<float>(y, row)[col] = x.dtype == DType::kF32
                                      ? head_at<const float>(x, row)[col]
                                      : to_float(Bf16{head_at<const std::uint16_t>(x, row)[col]});
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::to_wire(Stream& stream, const Tensor& x, const Tensor& y) {
  assert(x.rows == y.rows && x.cols() == y.cols());
  each_number(stream, x.rows, x.cols(), Round{x, y});
}

void TROUPE_CUDA_SPACE::from_wire(Stream& stream, const Tensor& x, const Tensor& y) {
  assert(x.rows == y.rows && x.cols() == y.cols());
  each_number(stream, x.rows, x.cols(), Widen{x, y});
}

}  // namespace troupe::kernels
