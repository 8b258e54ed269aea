#include "kernels/rope.h"

#include <cassert>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"

namespace troupe::kernels {

void cpu::rope(Stream& stream, const RopeTable& table, RopePairs pairs,
               const std::int32_t* positions, const Tensor& x) {
  assert(x.dim >= 2 * table.half);
  const auto& kernels = row_kernels(stream);
  each_row(stream, x, 0.3, [&](std::int64_t r) {
    assert(positions[r] >= 0 && positions[r] < table.positions);
    const std::int64_t at = positions[r] * table.half;
    for (std::int64_t h = 0; h < x.heads; ++h)
      kernels.turn(table.cos + at, table.sin + at, table.half, pairs == RopePairs::kInterleaved,
                   head_of<float>(x, r, h));
  });
}

}  // namespace troupe::kernels
