#include "kernels/linear.h"

#include <cassert>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {

/// Bytes, operations and what bounds them are said by the products (fast_product.cu,
/// mma_product.cu, plain_product.cu) and by prepare.cu: here is what they are given.
Products linear_products(Numerics numerics, const Weight& weight, const Activation& x,
                         const Tensor& y, const float* bias) {
  const WeightLayout layout = WeightLayout::of(weight);
  assert(layout.codes != Codes::kF32);  // that is `reference`
  assert(x.k == layout.k && x.slices == layout.slices && x.groups == layout.groups);
  assert(x.full_precision == weight.full_precision() && x.rows == y.rows);
  assert(y.dtype == DType::kF32 && y.heads == layout.groups && y.dim == layout.n);
  assert(bias == nullptr || layout.groups == 1);
  Products p;
  p.layout = layout;
  p.x_bytes = x.row_bytes;
  p.low_bytes = x.low_bytes;
  p.y_bytes = y.row_stride * 4;
  p.terms = terms_of(weight, layout);
  p.came = x.came;
  EvenItems items;
  items.panels[0] = WeightLayout::panel(weight, layout, 0, 0);
  items.bias[0] = bias;
  items.x = x.data;
  items.y = static_cast<std::byte*>(y.data);
  items.x_group_bytes = x.group_bytes;
  items.y_group_bytes = y.head_stride * 4;
  items.groups = static_cast<std::int32_t>(layout.groups);
  items.rows = static_cast<std::int32_t>(x.rows);
  p.take(items, rows_at_once(numerics, p.terms));
  return p;
}

}  // namespace TROUPE_CUDA_SPACE

Activation TROUPE_CUDA_SPACE::prepare(Stream& stream, const Tensor& x, const Weight& weight) {
  const WeightLayout layout = WeightLayout::of(weight);
  assert(x.dim == layout.k && x.heads == layout.groups);
  assert(x.dtype == DType::kF32 || x.dtype == DType::kBf16);
  const PreparedRows prepared = PreparedRows::room(stream, weight, layout, x.rows * x.heads);
  Activation a;
  a.data = prepared.data;
  a.rows = x.rows;
  a.groups = x.heads;
  a.k = layout.k;
  a.slices = layout.slices;
  a.full_precision = weight.full_precision();
  a.row_bytes = prepared.row_bytes;
  a.low_bytes = prepared.low_bytes;
  a.came = prepared.came;
  a.group_bytes = a.rows * a.row_bytes;
  RowsToPrepare rows;
  const auto size = static_cast<std::int64_t>(dtype_size(x.dtype));
  rows.data = static_cast<const std::byte*>(x.data);
  rows.row_bytes = x.row_stride * size;
  rows.group_bytes = x.head_stride * size;
  rows.bf16 = x.dtype == DType::kBf16;
  rows.count = x.rows;
  rows.groups = x.heads;
  prepare_rows(stream, rows, prepared);
  return a;
}

void TROUPE_CUDA_SPACE::linear(Stream& stream, const Weight& weight, const Activation& x,
                               const Tensor& y, const float* bias) {
  fast_products(stream, linear_products(stream.numerics(), weight, x, y, bias));
}

void TROUPE_CUDA_SPACE::plain_linear(Stream& stream, const Weight& weight, const Activation& x,
                                     const Tensor& y, const float* bias) {
  plain_products(stream, linear_products(stream.numerics(), weight, x, y, bias));
}

}  // namespace troupe::kernels
