#include "kernels/combine.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// Bytes, a number: of each of per_row outputs 2, in bf16, and 8 of y. Operations: a multiplication
/// and an addition an output. Bound by memory.
struct AddOutputs {
  const WeightedOutput* outputs;
  std::int64_t per_row;
  DType dtype;
  Tensor y;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    float* to = head_at<float>(y, row) + col;
    float sum = *to;
    for (std::int64_t i = 0; i < per_row; ++i) {
      const WeightedOutput& out = outputs[row * per_row + i];
      sum = sum + out.weight * load_number(out.data, dtype, col);
    }
    *to = sum;
  }
};

/// The same of outputs that lie one after the other: bytes, operations and bound are those.
struct AddDense {
  Tensor outputs;
  const float* weights;
  std::int64_t per_row;
  Tensor y;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    float* to = head_at<float>(y, row) + col;
    float sum = *to;
    for (std::int64_t i = row * per_row; i < (row + 1) * per_row; ++i)
      sum =
          sum + weights[i] * load_number(outputs.data, outputs.dtype, i * outputs.row_stride + col);
    *to = sum;
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::combine(Stream& stream, std::span<const WeightedOutput> outputs,
                                std::size_t per_row, const Tensor& y) {
  assert(outputs.size() == per_row * static_cast<std::size_t>(y.rows));
  Stream::Scope scope(stream);
  const auto* list = staged(stream, outputs.data(), static_cast<std::int64_t>(outputs.size()));
  each_number(
      stream, y.rows, y.cols(),
      AddOutputs{list, static_cast<std::int64_t>(per_row), wire_type(stream.numerics()), y});
}

void TROUPE_CUDA_SPACE::combine_dense(Stream& stream, const Tensor& outputs, const float* weights,
                                      const Tensor& y) {
  assert(outputs.cols() == y.cols() && outputs.rows % y.rows == 0);
  each_number(stream, y.rows, y.cols(), AddDense{outputs, weights, outputs.rows / y.rows, y});
}

}  // namespace troupe::kernels
