#include "kernels/linear.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/fault.h"
#include "kernels/cpu/linear_core.h"
#include "kernels/cpu/parallel.h"
#include "runtime/bf16.h"

namespace troupe::kernels {
namespace cpu {
namespace {

/// Rows that pass through the temporaries of a sliced or partial panel at once.
constexpr std::size_t kRowBlock = 32;
constexpr std::size_t kTile = kRowBlock * kPanel;

/// Everything about a piece but how many there are and where its results go.
LinearSlice first_piece(const PackedMatrix& w, const LinearPlan& plan, const PreparedRows& x,
                        std::int64_t panel) {
  LinearSlice s;
  s.weights = w.panel(panel);
  s.bf16_pairs = w.type() == WeightType::kBf16;
  s.k = w.slice_k();
  s.k_padded = w.slice_k_padded();
  s.x = x.data;
  s.x_stride = x.stride;
  s.rows = x.rows;
  s.weights_step = w.panel_bytes() / static_cast<std::size_t>(w.slices());
  s.x_step = static_cast<std::size_t>(plan.round_x ? s.k_padded * 2 : s.k * 4);
  return s;
}

/// One panel through temporaries, at most kRowBlock rows at a time: every slice of k by itself,
/// then their sum as a binary tree.
void run_panel(const PackedMatrix& w, const LinearPlan& plan, const PreparedRows& x,
               std::int64_t panel, Rows y) {
  alignas(64) float tiles[limits::kSumSlices * kTile];
  const auto columns = static_cast<std::size_t>(std::min(kPanel, w.n() - panel * kPanel));
  for (std::size_t r = 0; r < x.rows; r += kRowBlock) {
    const PreparedRows block = {static_cast<const std::byte*>(x.data) + r * x.stride,
                                std::min(kRowBlock, x.rows - r), x.stride};
    LinearSlice slices = first_piece(w, plan, block, panel);
    slices.pieces = w.slices();
    slices.y = tiles;
    slices.y_stride = kPanel;
    slices.y_step = kTile;
    plan.slice(slices);
    for (int step = 1; step < w.slices(); step *= 2) {
      for (int s = 0; s < w.slices(); s += 2 * step) {
        float* left = tiles + static_cast<std::size_t>(s) * kTile;
        const float* right = left + static_cast<std::size_t>(step) * kTile;
        for (std::size_t i = 0; i < block.rows * kPanel; ++i) left[i] += right[i];
      }
    }
    for (std::size_t i = 0; i < block.rows; ++i)
      std::memcpy(y.row(r + i) + panel * kPanel, tiles + i * kPanel, columns * sizeof(float));
  }
}

/// Whole panels of a product that is one slice go straight to y.
void run_whole_panels(const PackedMatrix& w, const LinearPlan& plan, const PreparedRows& x,
                      std::int64_t first, std::int64_t last, Rows y) {
  LinearSlice panels = first_piece(w, plan, x, first);
  panels.pieces = last - first;
  panels.x_step = 0;
  panels.y = y.data + first * kPanel;
  panels.y_stride = y.stride;
  panels.y_step = kPanel;
  plan.slice(panels);
}

}  // namespace

LinearPlan linear_plan(const PackedMatrix& w) {
  switch (w.numerics()) {
    case Numerics::kReference: return {linear_slice_reference, false};
    case Numerics::kAvx2: return {linear_slice_avx2, false};
    case Numerics::kAvx512Bf16:
      if (!w.full_precision()) return {linear_slice_avx512_bf16, true};
      break;
    case Numerics::kAmxBf16:
      if (!w.full_precision()) return {linear_slice_amx_bf16, true};
      break;
  }
  return {linear_slice_avx2, false};  // float32 sums are the same in every wider family
}

std::size_t prepared_stride(const PackedMatrix& w) {
  return static_cast<std::size_t>(w.slices() * w.slice_k_padded()) * sizeof(Bf16);
}

void round_row(const PackedMatrix& w, const float* x, void* out) {
  auto* to = static_cast<std::uint16_t*>(out);
  const std::int64_t k = w.slice_k(), padded = w.slice_k_padded();
  for (int s = 0; s < w.slices(); ++s, x += k, to += padded)
    round_slice_avx512_bf16(x, k, padded, to);
}

void run_panels(const PackedMatrix& w, const PreparedRows& x, std::int64_t first, std::int64_t last,
                Rows y) {
  const LinearPlan plan = linear_plan(w);
  // A block of rows stays in the second-level cache while the panels pass.
  constexpr std::size_t kBlockBytes = 1u << 20;
  const std::size_t block = x.stride == 0 ? 64 : std::max<std::size_t>(64, kBlockBytes / x.stride);
  for (std::size_t r = 0; r < x.rows; r += block) {
    const std::size_t rows = std::min(block, x.rows - r);
    const PreparedRows part = {static_cast<const std::byte*>(x.data) + r * x.stride, rows,
                               x.stride};
    const Rows out = {y.row(r), rows, y.cols, y.stride};
    std::int64_t p = first;
    if (w.slices() == 1) {
      p = std::min(last, w.n() / kPanel);
      if (p > first) run_whole_panels(w, plan, part, first, p, out);
      p = std::max(p, first);
    }
    for (; p < last; ++p) run_panel(w, plan, part, p, out);
  }
}

double linear_work_ns(const PackedMatrix& w, std::size_t rows) {
  const double macs = static_cast<double>(w.n()) * static_cast<double>(w.k());
  const double rate = w.numerics() == Numerics::kReference ? 4 : 40;  // products a ns, roughly
  return std::max(static_cast<double>(w.bytes()) / 25, macs * static_cast<double>(rows) / rate);
}

}  // namespace cpu

namespace {

cpu::PreparedRows prepare(const Context& ctx, const PackedMatrix& w, ConstRows x) {
  if (!cpu::linear_plan(w).round_x) return {x.data, x.rows, x.stride * sizeof(float)};
  const std::size_t stride = cpu::prepared_stride(w);
  auto* out = ctx.scratch->take<std::byte>(x.rows * stride);
  const double work_ns = static_cast<double>(x.rows * x.cols) / 4;
  parallel_ranges(ctx, x.rows, work_ns, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t r = first; r < last; ++r) cpu::round_row(w, x.row(r), out + r * stride);
  });
  return {out, x.rows, stride};
}

}  // namespace

void linear(const Context& ctx, const PackedMatrix& w, ConstRows x, Rows y) {
  assert(w.numerics() == ctx.numerics && x.rows == y.rows);
  assert(static_cast<std::int64_t>(x.cols) == w.k() && static_cast<std::int64_t>(y.cols) == w.n());
  if (x.rows == 0) return;
  Scratch::Scope scope(*ctx.scratch);
  const cpu::PreparedRows prepared = prepare(ctx, w, x);
  parallel_ranges(ctx, static_cast<std::size_t>(w.panels()), cpu::linear_work_ns(w, x.rows),
                  [&](int, std::size_t first, std::size_t last) {
                    cpu::run_panels(w, prepared, static_cast<std::int64_t>(first),
                                    static_cast<std::int64_t>(last), y);
                  });
  apply_fault(ctx, "linear", y.data);
}

void linear_heads(const Context& ctx, std::span<const PackedMatrix> weights, ConstHeads x,
                  Heads y) {
  assert(weights.size() == x.heads && x.heads == y.heads && x.rows == y.rows);
  if (x.rows == 0 || weights.empty()) return;
  const PackedMatrix& one = weights[0];
  const bool round_x = cpu::linear_plan(one).round_x;
  const std::size_t stride = round_x ? cpu::prepared_stride(one) : 0;
  Scratch::Scope scope(*ctx.scratch);
  std::byte* rounded =
      round_x ? ctx.scratch->take<std::byte>(x.heads * x.rows * stride) : nullptr;
  const double work_ns = cpu::linear_work_ns(one, x.rows) * static_cast<double>(x.heads);
  parallel_ranges(ctx, x.heads, work_ns, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t h = first; h < last; ++h) {
      const PackedMatrix& w = weights[h];
      assert(w.numerics() == ctx.numerics && w.n() == one.n() && w.k() == one.k());
      cpu::PreparedRows prepared = {x.at(0, h), x.rows, x.row_stride * sizeof(float)};
      if (round_x) {
        std::byte* out = rounded + h * x.rows * stride;
        for (std::size_t r = 0; r < x.rows; ++r) cpu::round_row(w, x.at(r, h), out + r * stride);
        prepared = {out, x.rows, stride};
      }
      cpu::run_panels(w, prepared, 0, w.panels(), y.head(h));
    }
  });
  apply_fault(ctx, "linear_heads", y.data);
}

}  // namespace troupe::kernels
