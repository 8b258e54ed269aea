#include "kernels/residual.h"

#include <cassert>

#include "kernels/cpu/parallel.h"

namespace troupe::kernels {

void residual_add(const Context& ctx, ConstRows x, Rows y) {
  assert(x.rows == y.rows && x.cols == y.cols);
  const double work_ns = static_cast<double>(y.rows * y.cols) / 4;
  parallel_ranges(ctx, y.rows, work_ns, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t r = first; r < last; ++r) {
      const float* from = x.row(r);
      float* to = y.row(r);
      for (std::size_t i = 0; i < y.cols; ++i) to[i] += from[i];
    }
  });
}

}  // namespace troupe::kernels
