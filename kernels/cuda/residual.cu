#include "kernels/residual.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// Bytes: 12 a number, for one addition: bound by memory.
struct AddNumber {
  Tensor x, y;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    float* to = head_at<float>(y, row) + col;
    *to = *to + head_at<const float>(x, row)[col];
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::residual_add(Stream& stream, const Tensor& x, const Tensor& y) {
  assert(x.rows == y.rows && x.cols() == y.cols());
  each_number(stream, x.rows, x.cols(), AddNumber{x, y});
}

}  // namespace troupe::kernels
