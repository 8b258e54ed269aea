#include "kernels/silu_mul.h"

#include <cassert>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"

namespace troupe::kernels {

void cpu::silu_mul(Stream& stream, GatedAct act, const Tensor& gate, const Tensor& up,
                   const Tensor& y) {
  assert(gate.rows == up.rows && up.rows == y.rows);
  assert(gate.cols() == up.cols() && up.cols() == y.cols());
  const auto& kernels = row_kernels(stream);
  each_row(stream, y, 0.5, [&](std::int64_t r) {
    kernels.gated_act(act, head_of<const float>(gate, r), head_of<const float>(up, r), y.cols(),
                      head_of<float>(y, r));
  });
}

}  // namespace troupe::kernels
