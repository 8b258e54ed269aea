#include "kernels/combine.h"

#include <cassert>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"

namespace troupe::kernels {

void cpu::combine(Stream& stream, std::span<const WeightedOutput> outputs, std::size_t per_row,
                  const Tensor& y) {
  assert(outputs.size() == per_row * static_cast<std::size_t>(y.rows));
  const auto& kernels = row_kernels(stream);
  const DType type = wire_type(stream.numerics());
  each_row(stream, y, 0.1 * static_cast<double>(per_row), [&](std::int64_t r) {
    for (const auto& out : outputs.subspan(static_cast<std::size_t>(r) * per_row, per_row))
      kernels.add_weighted(out.data, type, out.weight, y.cols(), head_of<float>(y, r));
  });
}

}  // namespace troupe::kernels
