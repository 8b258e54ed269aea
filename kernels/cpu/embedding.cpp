#include "kernels/embedding.h"

#include <cassert>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/weight_layout.h"

namespace troupe::kernels {

void cpu::embedding(Stream& stream, const Weight& table, const std::int32_t* ids, const Tensor& y) {
  assert(y.cols() == table.k());
  const auto& kernels = row_kernels(stream);
  const DType dtype = WeightLayout::row_dtype(table);
  const std::byte* rows = WeightLayout::row_data(table);
  const std::int64_t bytes = table.k() * static_cast<std::int64_t>(dtype_size(dtype));
  each_row(stream, y, 0.15, [&](std::int64_t r) {
    assert(ids[r] >= 0 && ids[r] < table.n());
    kernels.widen(rows + ids[r] * bytes, dtype, table.k(), head_of<float>(y, r));
  });
}

}  // namespace troupe::kernels
