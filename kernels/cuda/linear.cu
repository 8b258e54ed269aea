#include "kernels/linear.h"

#include <cassert>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

using Multiply = void(Stream&, const Products&);

void linear_by(Multiply* multiply, Stream& stream, const Weight& weight, const Activation& x,
               const Tensor& y, const float* bias) {
  const WeightLayout layout = WeightLayout::of(weight);
  assert(layout.codes != Codes::kF32);  // that is `reference`
  assert(x.k == layout.k && x.slices == layout.slices && x.groups == layout.groups);
  assert(x.full_precision == weight.full_precision() && x.rows == y.rows);
  assert(y.dtype == DType::kF32 && y.heads == layout.groups && y.dim == layout.n);
  assert(bias == nullptr || layout.groups == 1);
  Stream::Scope scope(stream);
  Products p;
  p.layout = layout;
  p.x_bytes = x.row_bytes;
  p.low_bytes = x.low_bytes;
  p.y_bytes = y.row_stride * 4;
  p.terms = terms_of(weight, layout);
  const std::int64_t at_once = rows_at_once(stream.numerics(), p.terms);
  p.count = layout.groups * ceil_div(x.rows, at_once);
  const Told<ProductItem> told(stream, p.count);
  ProductItem* items = told.host();
  for (std::int64_t group = 0; group < layout.groups; ++group)
    for (std::int64_t row = 0; row < x.rows; row += at_once) {
      ProductItem item;
      item.panels = WeightLayout::panel(weight, layout, group, 0);
      item.x = x.data + group * x.group_bytes + row * x.row_bytes;
      item.bias = bias;
      item.y = static_cast<std::byte*>(y.data) + group * y.head_stride * 4 + row * p.y_bytes;
      item.rows = static_cast<std::int32_t>(std::min(at_once, x.rows - row));
      p.rows_max = std::max(p.rows_max, item.rows);
      *items++ = item;
    }
  p.items = told.send();
  multiply(stream, p);
}

}  // namespace
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
  linear_by(fast_products, stream, weight, x, y, bias);
}

void TROUPE_CUDA_SPACE::plain_linear(Stream& stream, const Weight& weight, const Activation& x,
                                     const Tensor& y, const float* bias) {
  linear_by(plain_products, stream, weight, x, y, bias);
}

}  // namespace troupe::kernels
