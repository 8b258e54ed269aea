#include "kernels/rms_norm.h"

#include <cassert>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"

namespace troupe::kernels {

void cpu::rms_norm(Stream& stream, const Tensor& x, const Weight& weight, float epsilon,
                   const Tensor& y) {
  assert(x.rows == y.rows && x.heads == y.heads && x.dim == y.dim);
  assert(weight.n() * weight.k() == x.dim);
  const auto& kernels = row_kernels(stream);
  const float* scales = vector_of(weight);
  each_row(stream, x, 0.2, [&](std::int64_t r) {
    for (std::int64_t h = 0; h < x.heads; ++h)
      kernels.norm(head_of<float>(x, r, h), scales, x.dim, epsilon, head_of<float>(y, r, h));
  });
}

}  // namespace troupe::kernels
