#include "kernels/gated_mlp.h"

#include <cassert>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

using Multiply = void(Stream&, const Products&);

const float* bias_of(const Weight& vector) { return vector.empty() ? nullptr : vector_of(vector); }

/// Some experts of one shape, each on its rows: gate and up of all of them, the activation
/// function, down of all. Bytes: the three matrices of each expert, once for up to rows_at_once().
/// Operations and bound: those of its products (fast_product.cu, mma_product.cu).
class MlpPass {
 public:
  MlpPass(Multiply* multiply, Stream& stream, std::span<const ExpertCall> calls)
      : multiply_(multiply),
        stream_(stream),
        calls_(calls),
        first_(*calls[0].expert),
        up_(WeightLayout::of(first_.up)),
        down_(WeightLayout::of(first_.down)) {
    for (const ExpertCall& c : calls) rows_ = std::max<std::int64_t>(rows_, c.first + c.count);
  }
  std::int64_t rows() const { return rows_; }

  /// `outputs`: where each row's goes, a list of the device's.
  void run(GatedAct act, const RowsToPrepare& x, std::byte* const* outputs, bool bf16) const {
    const PreparedRows in = PreparedRows::room(stream_, first_.gate, up_, rows_);
    const PreparedRows middle = PreparedRows::room(stream_, first_.down, down_, rows_);
    std::byte* halves =
        stream_.scratch().take<std::byte>(static_cast<std::size_t>(2 * rows_ * up_.n * 4));
    prepare_rows(stream_, x, in);
    gate_and_up(in, halves);
    prepare_rows(stream_, RowsToPrepare::halves(act, halves, up_.n, rows_), middle);
    down(middle, outputs, bf16);
  }

 private:
  /// Calls put(call, its first row of the item, the item) for all items of a product.
  template <class Put>
  void multiply(Products p, const PreparedRows& x, int matrices, const Put& put) const {
    p.x_bytes = x.row_bytes;
    p.low_bytes = x.low_bytes;
    p.came = x.came;
    const std::int64_t at_once = rows_at_once(stream_.numerics(), p.terms);
    for (const ExpertCall& c : calls_) p.count += matrices * ceil_div(c.count, at_once);
    const Told<ProductItem> told(stream_, p.count);
    ProductItem* items = told.host();
    for (const ExpertCall& c : calls_)
      for (std::int64_t i = 0; i < c.count; i += at_once)
        for (int matrix = 0; matrix < matrices; ++matrix) {
          ProductItem item;
          item.x = x.data + (c.first + i) * x.row_bytes;
          item.rows = static_cast<std::int32_t>(std::min<std::int64_t>(at_once, c.count - i));
          put(c, c.first + i, matrix, item);
          p.rows_max = std::max(p.rows_max, item.rows);
          *items++ = item;
        }
    p.items = told.device();
    multiply_(stream_, p);
  }

  void gate_and_up(const PreparedRows& in, std::byte* halves) const {
    Products p;
    p.layout = up_;
    p.terms = terms_of(first_.gate, up_);
    p.y_bytes = 2 * up_.n * 4;
    multiply(p, in, 2, [&](const ExpertCall& c, std::int64_t row, int matrix, ProductItem& item) {
      const Weight& w = matrix == 0 ? c.expert->gate : c.expert->up;
      item.panels = WeightLayout::panel(w, up_, 0, 0);
      item.bias = bias_of(matrix == 0 ? c.expert->gate_bias : c.expert->up_bias);
      item.y = halves + (2 * row + matrix) * up_.n * 4;
    });
  }

  void down(const PreparedRows& middle, std::byte* const* outputs, bool bf16) const {
    Products p;
    p.layout = down_;
    p.terms = terms_of(first_.down, down_);
    p.y_bf16 = bf16;
    multiply(p, middle, 1, [&](const ExpertCall& c, std::int64_t row, int, ProductItem& item) {
      item.panels = WeightLayout::panel(c.expert->down, down_, 0, 0);
      item.bias = bias_of(c.expert->down_bias);
      item.y_rows = outputs + row;
    });
  }

  Multiply* multiply_;
  Stream& stream_;
  std::span<const ExpertCall> calls_;
  const GatedMlp& first_;
  const WeightLayout up_, down_;  ///< the gate lies as `up` does
  std::int64_t rows_ = 0;
};

void gated_mlp_by(Multiply* multiply, Stream& stream, const GatedMlp& mlp, GatedAct act,
                  const Tensor& x, const Tensor& y) {
  assert(x.rows == y.rows && x.dtype == DType::kF32 && y.dtype == DType::kF32);
  assert(x.heads == 1 && x.dim == mlp.gate.k() && y.heads == 1 && y.dim == mlp.down.n());
  Stream::Scope scope(stream);
  const WeightLayout up = WeightLayout::of(mlp.up), down = WeightLayout::of(mlp.down);
  const PreparedRows in = PreparedRows::room(stream, mlp.gate, up, x.rows);
  const PreparedRows middle = PreparedRows::room(stream, mlp.down, down, x.rows);
  const Tensor halves = stream.alloc(x.rows, 2 * up.n);
  const auto by = [&](const Weight& w, const WeightLayout& layout, const PreparedRows& rows,
                      const Tensor& to, EvenItems items) {
    Products p;
    p.layout = layout;
    p.terms = terms_of(w, layout);
    p.x_bytes = rows.row_bytes;
    p.low_bytes = rows.low_bytes;
    p.came = rows.came;
    p.y_bytes = to.row_stride * 4;
    items.x = rows.data;
    items.y = static_cast<std::byte*>(to.data);
    items.rows = static_cast<std::int32_t>(x.rows);
    p.take(items, rows_at_once(stream.numerics(), p.terms));
    multiply(stream, p);
  };

  RowsToPrepare from;
  from.data = static_cast<const std::byte*>(x.data);
  from.row_bytes = x.row_stride * 4;
  from.count = x.rows;
  prepare_rows(stream, from, in);
  EvenItems both;
  both.panels[0] = WeightLayout::panel(mlp.gate, up, 0, 0);
  both.panels[1] = WeightLayout::panel(mlp.up, up, 0, 0);
  both.bias[0] = bias_of(mlp.gate_bias);
  both.bias[1] = bias_of(mlp.up_bias);
  both.y_matrix_bytes = up.n * 4;
  both.matrices = 2;
  by(mlp.gate, up, in, halves, both);
  prepare_rows(stream,
               RowsToPrepare::halves(act, static_cast<const std::byte*>(halves.data), up.n, x.rows),
               middle);
  EvenItems last;
  last.panels[0] = WeightLayout::panel(mlp.down, down, 0, 0);
  last.bias[0] = bias_of(mlp.down_bias);
  by(mlp.down, down, middle, y, last);
}

void expert_mlp_by(Multiply* multiply, Stream& stream, std::span<const ExpertCall> calls,
                   GatedAct act, const std::byte* const* rows, std::byte* const* outputs) {
  const MlpPass pass(multiply, stream, calls);
  if (pass.rows() == 0) return;
  Stream::Scope scope(stream);
  const bool bf16 = wire_type(stream.numerics()) == DType::kBf16;
  RowsToPrepare from;
  from.rows = staged(stream, rows, pass.rows());
  from.bf16 = bf16;
  from.count = pass.rows();
  pass.run(act, from, staged(stream, outputs, pass.rows()), bf16);
}

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::gated_mlp(Stream& stream, const GatedMlp& mlp, GatedAct act,
                                  const Tensor& x, const Tensor& y) {
  gated_mlp_by(fast_products, stream, mlp, act, x, y);
}

void TROUPE_CUDA_SPACE::expert_mlp(Stream& stream, std::span<const ExpertCall> calls, GatedAct act,
                                   const std::byte* const* rows, std::byte* const* outputs) {
  expert_mlp_by(fast_products, stream, calls, act, rows, outputs);
}

void TROUPE_CUDA_SPACE::plain_gated_mlp(Stream& stream, const GatedMlp& mlp, GatedAct act,
                                        const Tensor& x, const Tensor& y) {
  gated_mlp_by(plain_products, stream, mlp, act, x, y);
}

void TROUPE_CUDA_SPACE::plain_expert_mlp(Stream& stream, std::span<const ExpertCall> calls,
                                         GatedAct act, const std::byte* const* rows,
                                         std::byte* const* outputs) {
  expert_mlp_by(plain_products, stream, calls, act, rows, outputs);
}

}  // namespace troupe::kernels
