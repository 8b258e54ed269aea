#include "kernels/residual.h"

#include <cassert>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"

namespace troupe::kernels {

void cpu::residual_add(Stream& stream, const Tensor& x, const Tensor& y) {
  assert(x.rows == y.rows && x.cols() == y.cols());
  const auto& kernels = row_kernels(stream);
  each_row(stream, y, 0.15, [&](std::int64_t r) {
    kernels.add(head_of<const float>(x, r), y.cols(), head_of<float>(y, r));
  });
}

}  // namespace troupe::kernels
