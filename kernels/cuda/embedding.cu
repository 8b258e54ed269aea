#include "kernels/embedding.h"

#include <cassert>

#include "kernels/cpu/weight_layout.h"
#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// Bytes: k numbers of the table and 4 k of the result a row. Operations: a shift a number, of
/// bf16. Bound by memory, or by the launch.
struct WidenRow {
  const std::byte* rows;
  DType dtype;
  std::int64_t row_bytes;
  const std::int32_t* ids;
  Tensor y;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    head_at<float>(y, row)[col] = load_number(rows + ids[row] * row_bytes, dtype, col);
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::embedding(Stream& stream, const Weight& table, const std::int32_t* ids,
                                  const Tensor& y) {
  assert(y.cols() == table.k());
  Stream::Scope scope(stream);
  const DType dtype = WeightLayout::row_dtype(table);
  const std::int64_t bytes = table.k() * static_cast<std::int64_t>(dtype_size(dtype));
  each_number(
      stream, y.rows, y.cols(),
      WidenRow{WeightLayout::row_data(table), dtype, bytes, staged(stream, ids, y.rows), y});
}

}  // namespace troupe::kernels
