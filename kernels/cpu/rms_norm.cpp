#include "kernels/rms_norm.h"

#include <cassert>

#include "kernels/cpu/parallel.h"
#include "kernels/scalar_math.h"

namespace troupe::kernels {
namespace {

/// Sum of squares as 16 running sums (element i belongs to i % 16), joined as a binary tree.
float sum_of_squares(const float* x, std::size_t d) {
  float sum[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= d; i += 16)
    for (std::size_t j = 0; j < 16; ++j) sum[j] += x[i + j] * x[i + j];
  for (std::size_t j = 0; i + j < d; ++j) sum[j] += x[i + j] * x[i + j];
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) sum[j] += sum[j + half];
  return sum[0];
}

}  // namespace

void rms_norm(const Context& ctx, ConstRows x, const float* weight, float epsilon, Rows y) {
  assert(x.rows == y.rows && x.cols == y.cols);
  const double work_ns = static_cast<double>(x.rows * x.cols) / 3;
  parallel_ranges(ctx, x.rows, work_ns, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t r = first; r < last; ++r) {
      const float* from = x.row(r);
      float* to = y.row(r);
      const float mean = sum_of_squares(from, x.cols) / static_cast<float>(x.cols);
      const float scale = 1.0f / sqrt_f32(mean + epsilon);
      for (std::size_t i = 0; i < x.cols; ++i) to[i] = weight[i] * (from[i] * scale);
    }
  });
}

}  // namespace troupe::kernels
