#include "kernels/gated_mlp.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/gated_act.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/product_work.h"
#include "runtime/float_mode.h"

namespace troupe::kernels {
namespace {

using cpu::ProductJob;
using cpu::ProductKernels;
using cpu::ProductOutput;

/// Rows that come from anywhere.
struct RowSource {
  const std::byte* data = nullptr;
  std::int64_t row_bytes = 0;
  const std::byte* const* rows = nullptr;  ///< not null: instead of the two above
  bool bf16 = false;

  const std::byte* row(std::int64_t i) const { return rows ? rows[i] : data + i * row_bytes; }
};

/// Prepared rows of all calls, and what it takes to make them.
struct Prepared {
  const ProductKernels* kernels = nullptr;
  const WeightLayout* layout = nullptr;
  std::byte* data = nullptr;
  std::int64_t row_bytes = 0, low_bytes = 0;

  Prepared(Stream& stream, const ProductKernels& k, const Weight& w, const WeightLayout& l,
           std::int64_t rows)
      : kernels(&k), layout(&l), low_bytes(cpu::prepared_low_bytes(k, w, l)) {
    row_bytes = cpu::prepared_row_bytes(k, l) + low_bytes;
    data = stream.scratch().take<std::byte>(static_cast<std::size_t>(rows * row_bytes));
  }
  std::byte* row(std::int64_t i) const { return data + i * row_bytes; }
  void put(std::int64_t i, const void* x, bool bf16, std::int64_t first, std::int64_t count) const {
    cpu::put_columns(*kernels, *layout, low_bytes, x, bf16, first, count, row(i));
  }
  void clear_padding(std::int64_t i) const {
    cpu::clear_padding(*kernels, *layout, low_bytes, row(i));
  }
};

const float* bias_of(const Weight& vector) {
  return vector.empty() ? nullptr : vector_of(vector);
}

/// Some experts, each on its rows: gate and up of all of them as one list of work, their product
/// with the activation function straight into the form that `down` wants, then `down` of all.
class MlpPass {
 public:
  MlpPass(Stream& stream, std::span<const ExpertCall> calls, GatedAct act)
      : stream_(stream), calls_(calls), act_(act), kernels_(cpu::product_kernels(stream)),
        up_(WeightLayout::of(calls[0].expert->up)), down_(WeightLayout::of(calls[0].expert->down)) {
    for (const ExpertCall& c : calls) rows_ = std::max<std::int64_t>(rows_, c.first + c.count);
  }

  void run(const RowSource& x, const ProductOutput& y) {
    assert(float_mode_is_set());
    if (rows_ == 0) return;
    Stream::Scope scope(stream_);
    const Weight& gate = calls_[0].expert->gate;
    const Prepared in(stream_, kernels_, gate, up_, rows_);
    const Prepared middle(stream_, kernels_, calls_[0].expert->down, down_, rows_);
    float* halves = stream_.scratch().take<float>(static_cast<std::size_t>(2 * rows_ * up_.n));
    std::byte* room = cpu::product_room(stream_);
    gather(x, in, middle);
    each_panel(up_, 2, [&](int thread, const ExpertCall& c, std::int64_t first, std::int64_t last) {
      gate_and_up(c, first, last, in, middle, halves, room + room_at(thread));
    });
    each_panel(down_, 1, [&](int thread, const ExpertCall& c, std::int64_t first,
                             std::int64_t last) {
      ProductJob job = job_of(c, c.expert->down, down_, middle, first, last);
      job.bias = bias_of(c.expert->down_bias);
      job.y = y;
      if (y.rows != nullptr)
        job.y.rows += c.first;
      else
        job.y.data += c.first * y.row_bytes;
      job.room = room + room_at(thread);
      kernels_.run(job);
    });
  }

 private:
  static std::size_t room_at(int thread) {
    return static_cast<std::size_t>(thread) * cpu::kProductRoom;
  }

  void gather(const RowSource& x, const Prepared& in, const Prepared& middle) {
    const double work_ns = static_cast<double>(rows_ * up_.k) / 8;
    parallel_ranges(stream_, static_cast<std::size_t>(rows_), work_ns,
                    [&](int, std::size_t first, std::size_t last) {
                      for (auto i = static_cast<std::int64_t>(first);
                           i < static_cast<std::int64_t>(last); ++i) {
                        in.put(i, x.row(i), x.bf16, 0, up_.k);
                        in.clear_padding(i);
                        middle.clear_padding(i);
                      }
                    });
  }

  double call_ns(const WeightLayout& layout, const ExpertCall& c, int products) const {
    return c.count == 0 ? 0 : products * cpu::panel_work_ns(stream_, layout, c.count);
  }

  /// The panel, counted over all calls, before which `ns` of the work lie.
  std::int64_t edge(const WeightLayout& layout, int products, double ns) const {
    std::int64_t first = 0;
    for (const ExpertCall& c : calls_) {
      const double panel_ns = call_ns(layout, c, products);
      const double all_ns = panel_ns * static_cast<double>(layout.panels);
      if (ns < all_ns) return first + static_cast<std::int64_t>(ns / panel_ns);
      ns -= all_ns;
      first += layout.panels;
    }
    return first;
  }

  /// Calls body(thread, call, first, last) with panels of one product of every call that has rows:
  /// pieces of the same work, whatever the experts' rows.
  template <class Body>
  void each_panel(const WeightLayout& layout, int products, const Body& body) {
    double work_ns = 0;
    for (const ExpertCall& c : calls_)
      work_ns += call_ns(layout, c, products) * static_cast<double>(layout.panels);
    const Pieces pieces(worthwhile_threads(stream_, work_ns), work_ns);
    const auto cut = [&](std::size_t i) {
      if (i == pieces.count()) return static_cast<std::int64_t>(calls_.size()) * layout.panels;
      return edge(layout, products, work_ns * pieces.before(i));
    };
    parallel_pieces(stream_, pieces, [&](int thread, std::size_t i) {
      for (std::int64_t first = cut(i), last = cut(i + 1); first < last;) {
        const ExpertCall& c = calls_[static_cast<std::size_t>(first / layout.panels)];
        const std::int64_t from = first % layout.panels;
        const std::int64_t to = std::min(layout.panels, from + last - first);
        if (c.count > 0) body(thread, c, from, to);
        first += to - from;
      }
    });
  }

  static ProductJob job_of(const ExpertCall& c, const Weight& w, const WeightLayout& layout,
                           const Prepared& x, std::int64_t first, std::int64_t last) {
    ProductJob job;
    job.layout = &layout;
    job.panels = WeightLayout::panel(w, layout, 0, 0);
    job.first = first;
    job.last = last;
    job.x = x.row(c.first);
    job.rows = c.count;
    job.row_bytes = x.row_bytes;
    job.low_bytes = x.low_bytes;
    return job;
  }

  void gate_and_up(const ExpertCall& c, std::int64_t first, std::int64_t last, const Prepared& in,
                   const Prepared& middle, float* halves, std::byte* room) {
    float* gate = halves + c.first * 2 * up_.n;
    float* up = gate + up_.n;
    ProductJob job = job_of(c, c.expert->gate, up_, in, first, last);
    job.room = room;
    job.y.row_bytes = 2 * up_.n * 4;
    job.y.data = reinterpret_cast<std::byte*>(gate);
    job.bias = bias_of(c.expert->gate_bias);
    kernels_.run(job);
    job.panels = WeightLayout::panel(c.expert->up, up_, 0, 0);
    job.y.data = reinterpret_cast<std::byte*>(up);
    job.bias = bias_of(c.expert->up_bias);
    kernels_.run(job);
    const std::int64_t from = first * WeightLayout::kOutputs;
    const std::int64_t count = std::min(last * WeightLayout::kOutputs, up_.n) - from;
    for (std::int64_t r = 0; r < c.count; ++r) {
      float* g = gate + r * 2 * up_.n + from;
      cpu::gated_act_row(act_, g, up + r * 2 * up_.n + from, count, g);
      middle.put(c.first + r, g, false, from, count);
    }
  }

  Stream& stream_;
  std::span<const ExpertCall> calls_;
  const GatedAct act_;
  const ProductKernels& kernels_;
  const WeightLayout up_, down_;  ///< the gate lies as `up` does
  std::int64_t rows_ = 0;
};

}  // namespace

void cpu::gated_mlp(Stream& stream, const GatedMlp& mlp, GatedAct act, const Tensor& x,
                    const Tensor& y) {
  assert(x.rows == y.rows && x.dtype == DType::kF32 && y.dtype == DType::kF32);
  assert(x.heads == 1 && x.dim == mlp.gate.k() && y.heads == 1 && y.dim == mlp.down.n());
  const ExpertCall call = {&mlp, 0, static_cast<std::int32_t>(x.rows)};
  const RowSource from = {static_cast<const std::byte*>(x.data), x.row_stride * 4};
  const ProductOutput to = {static_cast<std::byte*>(y.data), y.row_stride * 4};
  MlpPass(stream, {&call, 1}, act).run(from, to);
}

void cpu::expert_mlp(Stream& stream, std::span<const ExpertCall> calls, GatedAct act,
                     const std::byte* const* rows, std::byte* const* outputs) {
  const DType wire = wire_type(stream.numerics());
  RowSource from;
  from.rows = rows;
  from.bf16 = wire == DType::kBf16;
  ProductOutput to;
  to.rows = outputs;
  to.bf16 = wire == DType::kBf16;
  MlpPass(stream, calls, act).run(from, to);
}

}  // namespace troupe::kernels
