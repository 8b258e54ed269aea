#include "kernels/silu_mul.h"

#include <cassert>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/silu_row.h"

namespace troupe::kernels {

void silu_mul(const Context& ctx, ConstRows gate, ConstRows up, Rows y) {
  assert(gate.rows == up.rows && up.rows == y.rows);
  assert(gate.cols == up.cols && up.cols == y.cols);
  const double work_ns = static_cast<double>(y.rows * y.cols) * 1.5;
  parallel_ranges(ctx, y.rows, work_ns, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t r = first; r < last; ++r)
      cpu::silu_row(gate.row(r), up.row(r), y.cols, y.row(r));
  });
}

}  // namespace troupe::kernels
