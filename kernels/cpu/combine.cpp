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

void cpu::combine_dense(Stream& stream, const Tensor& outputs, const float* weights,
                        const Tensor& y) {
  assert(outputs.cols() == y.cols() && outputs.rows % y.rows == 0);
  const auto& kernels = row_kernels(stream);
  const std::int64_t per_row = outputs.rows / y.rows;
  const auto bytes = outputs.row_stride * static_cast<std::int64_t>(dtype_size(outputs.dtype));
  each_row(stream, y, 0.1 * static_cast<double>(per_row), [&](std::int64_t r) {
    for (std::int64_t i = r * per_row; i < (r + 1) * per_row; ++i)
      kernels.add_weighted(static_cast<const std::byte*>(outputs.data) + i * bytes, outputs.dtype,
                           weights[i], y.cols(), head_of<float>(y, r));
  });
}

}  // namespace troupe::kernels
