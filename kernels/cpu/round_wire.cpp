#include "kernels/round_wire.h"

#include <cassert>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"

namespace troupe::kernels {

void cpu::to_wire(Stream& stream, const Tensor& x, const Tensor& y) {
  assert(x.rows == y.rows && x.cols() == y.cols());
  const auto& kernels = row_kernels(stream);
  each_row(stream, y, 0.15, [&](std::int64_t r) {
    kernels.narrow(head_of<const float>(x, r), x.cols(), y.dtype, row_of(y, r));
  });
}

void cpu::from_wire(Stream& stream, const Tensor& x, const Tensor& y) {
  assert(x.rows == y.rows && x.cols() == y.cols());
  const auto& kernels = row_kernels(stream);
  each_row(stream, y, 0.15, [&](std::int64_t r) {
    kernels.widen(row_of(x, r), x.dtype, x.cols(), head_of<float>(y, r));
  });
}

}  // namespace troupe::kernels
