#include "kernels/linear.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/product_work.h"
#include "runtime/float_mode.h"

namespace troupe::kernels {
namespace cpu {

std::int64_t prepared_low_bytes(const ProductKernels& kernels, const Weight& weight,
                                const WeightLayout& l) {
  if (!weight.full_precision() || !kernels.splits) return 0;
  return l.slices * l.blocks * WeightLayout::kBlock * kernels.element_bytes;
}

std::int64_t prepared_row_bytes(const ProductKernels& kernels, const WeightLayout& l) {
  return l.slices * l.blocks * WeightLayout::kBlock * kernels.element_bytes;
}

void put_columns(const ProductKernels& kernels, const WeightLayout& l, std::int64_t low_bytes,
                 const void* x, bool bf16, std::int64_t first, std::int64_t count, std::byte* row) {
  const auto* from = static_cast<const std::byte*>(x);
  while (count > 0) {
    const std::int64_t slice = first / l.slice_k, within = first % l.slice_k;
    const std::int64_t some = std::min(count, l.slice_k - within);
    const std::int64_t at = slice * l.blocks * WeightLayout::kBlock + within;
    kernels.put(from, bf16, some, row + at * kernels.element_bytes, low_bytes);
    from += some * (bf16 ? 2 : 4);
    first += some;
    count -= some;
  }
}

void clear_padding(const ProductKernels& kernels, const WeightLayout& l, std::int64_t low_bytes,
                   std::byte* row) {
  const std::int64_t padded = l.blocks * WeightLayout::kBlock;
  if (padded == l.slice_k) return;
  for (int part = 0; part < (low_bytes > 0 ? 2 : 1); ++part)
    for (int s = 0; s < l.slices; ++s)
      std::memset(row + part * low_bytes + (s * padded + l.slice_k) * kernels.element_bytes, 0,
                  static_cast<std::size_t>((padded - l.slice_k) * kernels.element_bytes));
}

double panel_work_ns(const Stream& stream, const WeightLayout& l, std::int64_t rows) {
  const auto weights = static_cast<double>(l.parts * l.slices * l.blocks * WeightLayout::kBlock *
                                           WeightLayout::kOutputs);
  // Products a ns, and codes that are expanded, roughly.
  const bool narrow = stream.family() == CpuFamily::kAvx2;
  const double products = stream.numerics() == Numerics::kReference ? 4 : narrow ? 30 : 60;
  double ns = weights * static_cast<double>(rows) / products;
  if (code_bits(l.codes) < 16) ns += weights / (narrow ? 10 : 20);
  return std::max(static_cast<double>(l.panel_bytes) / 25, ns);
}

std::byte* product_room(Stream& stream) {
  const int threads = stream.pool() == nullptr ? 1 : stream.pool()->threads();
  return stream.scratch().take<std::byte>(static_cast<std::size_t>(threads) * kProductRoom);
}

}  // namespace cpu

Activation cpu::prepare(Stream& stream, const Tensor& x, const Weight& weight) {
  assert(float_mode_is_set());
  const cpu::ProductKernels& kernels = cpu::product_kernels(stream);
  const WeightLayout layout = WeightLayout::of(weight);
  assert(x.dim == layout.k && x.heads == layout.groups);
  assert(x.dtype == DType::kF32 || x.dtype == DType::kBf16);
  Activation a;
  a.rows = x.rows;
  a.groups = x.heads;
  a.k = layout.k;
  a.slices = layout.slices;
  a.full_precision = weight.full_precision();
  a.low_bytes = cpu::prepared_low_bytes(kernels, weight, layout);
  a.row_bytes = cpu::prepared_row_bytes(kernels, layout) + a.low_bytes;
  a.group_bytes = a.rows * a.row_bytes;
  auto* out = stream.scratch().take<std::byte>(static_cast<std::size_t>(a.groups * a.group_bytes));
  a.data = out;
  const bool bf16 = x.dtype == DType::kBf16;
  const auto count = static_cast<std::size_t>(a.rows * a.groups);
  const double work_ns = static_cast<double>(a.rows * x.cols()) / 8;
  parallel_ranges(stream, count, work_ns, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const auto g = static_cast<std::int64_t>(i) / a.rows;
      const auto r = static_cast<std::int64_t>(i) % a.rows;
      const auto* from = static_cast<const std::byte*>(x.data) +
                         (r * x.row_stride + g * x.head_stride) * (bf16 ? 2 : 4);
      std::byte* row = out + g * a.group_bytes + r * a.row_bytes;
      cpu::put_columns(kernels, layout, a.low_bytes, from, bf16, 0, layout.k, row);
      cpu::clear_padding(kernels, layout, a.low_bytes, row);
    }
  });
  return a;
}

void cpu::linear(Stream& stream, const Weight& weight, const Activation& x, const Tensor& y,
                 const float* bias) {
  assert(float_mode_is_set());
  assert(WeightLayout::numerics(weight) == stream.numerics() ||
         (WeightLayout::numerics(weight) != Numerics::kReference &&
          stream.numerics() != Numerics::kReference));
  const cpu::ProductKernels& kernels = cpu::product_kernels(stream);
  const WeightLayout layout = WeightLayout::of(weight);
  assert(x.k == layout.k && x.slices == layout.slices && x.groups == layout.groups);
  assert(x.full_precision == weight.full_precision() && x.rows == y.rows);
  assert(y.dtype == DType::kF32 && y.heads == layout.groups && y.dim == layout.n);
  assert(bias == nullptr || layout.groups == 1);
  Stream::Scope scope(stream);
  std::byte* room = cpu::product_room(stream);
  const std::int64_t panels = layout.groups * layout.panels;
  const double work_ns =
      cpu::panel_work_ns(stream, layout, x.rows) * static_cast<double>(panels);
  parallel_ranges(
      stream, static_cast<std::size_t>(panels), work_ns,
      [&](int thread, std::size_t begin, std::size_t end) {
        auto first = static_cast<std::int64_t>(begin);
        const auto last = static_cast<std::int64_t>(end);
        while (first < last) {
          const std::int64_t g = first / layout.panels, from = first % layout.panels;
          cpu::ProductJob job;
          job.layout = &layout;
          job.panels = WeightLayout::panel(weight, layout, g, 0);
          job.first = from;
          job.last = std::min(layout.panels, from + last - first);
          job.x = x.data + g * x.group_bytes;
          job.rows = x.rows;
          job.row_bytes = x.row_bytes;
          job.low_bytes = x.low_bytes;
          job.y.data = static_cast<std::byte*>(y.data) + g * y.head_stride * 4;
          job.y.row_bytes = y.row_stride * 4;
          job.bias = bias;
          job.room = room + static_cast<std::size_t>(thread) * cpu::kProductRoom;
          kernels.run(job);
          first += job.last - job.first;
        }
      });
}

}  // namespace troupe::kernels
