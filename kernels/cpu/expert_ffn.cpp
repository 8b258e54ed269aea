#include "kernels/expert_ffn.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/fault.h"
#include "kernels/cpu/linear_core.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/silu_row.h"

namespace troupe::kernels {
namespace {

using cpu::PreparedRows;

/// One call and where its rows lie among the rows of all calls.
struct Part {
  const ExpertWeights* weights;
  std::size_t first, rows;
};

/// A task is some panels of one call.
struct Tasks {
  std::size_t calls = 0, panels = 0, per_call = 1;

  std::size_t count() const { return calls * per_call; }
  std::size_t call(std::size_t i) const { return i / per_call; }
  std::int64_t first(std::size_t i) const { return edge(i % per_call); }
  std::int64_t last(std::size_t i) const { return edge(i % per_call + 1); }

 private:
  std::int64_t edge(std::size_t j) const {
    return static_cast<std::int64_t>(panels * j / per_call);
  }
};

Tasks split(const Context& ctx, std::size_t calls, std::int64_t panels, double work_ns) {
  Tasks t{calls, static_cast<std::size_t>(panels), 1};
  const std::size_t pieces = worthwhile_pieces(worthwhile_threads(ctx, work_ns), work_ns);
  if (pieces > 1 && calls > 0) t.per_call = std::min(t.panels, (pieces + calls - 1) / calls);
  return t;
}

template <class Body>
void run_tasks(const Context& ctx, const Tasks& tasks, double work_ns, const Body& body) {
  if (ctx.pool == nullptr || work_ns < kParallelAboveNs) {
    for (std::size_t i = 0; i < tasks.count(); ++i) body(i);
  } else {
    ctx.pool->parallel_for(tasks.count(), [&](int, std::size_t i) { body(i); });
  }
}

/// All activations of one product in the form that its plan wants, rows of a call together.
struct Activations {
  std::byte* data = nullptr;
  std::size_t stride = 0;

  PreparedRows of(const Part& p) const { return {data + p.first * stride, p.rows, stride}; }
};

Activations make_room(const Context& ctx, const PackedMatrix& w, std::size_t rows) {
  const std::size_t stride = cpu::linear_plan(w).round_x
                                 ? cpu::prepared_stride(w)
                                 : static_cast<std::size_t>(w.k()) * sizeof(float);
  return {ctx.scratch->take<std::byte>(rows * stride), stride};
}

void put_row(const PackedMatrix& w, const float* x, std::byte* out) {
  if (cpu::linear_plan(w).round_x)
    cpu::round_row(w, x, out);
  else
    std::memcpy(out, x, static_cast<std::size_t>(w.k()) * sizeof(float));
}

/// h = silu(gate(x)) * up(x) for a few panels of one call; `up` is room for the second factor.
void gate_and_up(const Part& part, const PreparedRows& x, std::int64_t first, std::int64_t last,
                 Rows h, Rows up) {
  const Rows h_part = {h.row(part.first), part.rows, h.cols, h.stride};
  const Rows up_part = {up.row(part.first), part.rows, up.cols, up.stride};
  cpu::run_panels(part.weights->gate, x, first, last, h_part);
  cpu::run_panels(part.weights->up, x, first, last, up_part);
  const auto from = static_cast<std::size_t>(first * kPanel);
  const std::size_t to = std::min(h.cols, static_cast<std::size_t>(last * kPanel));
  for (std::size_t r = 0; r < part.rows; ++r)
    cpu::silu_row(h_part.row(r) + from, up_part.row(r) + from, to - from, h_part.row(r) + from);
}

std::size_t list_parts(std::span<const ExpertCall> calls, Part* parts) {
  std::size_t rows = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    parts[i] = {calls[i].weights, rows, calls[i].rows.size()};
    rows += calls[i].rows.size();
  }
  return rows;
}

}  // namespace

void expert_ffn(const Context& ctx, std::span<const ExpertCall> calls, ConstRows x, Rows out) {
  if (calls.empty() || out.rows == 0) return;
  Scratch::Scope scope(*ctx.scratch);
  Part* parts = ctx.scratch->take<Part>(calls.size());
  const std::size_t rows = list_parts(calls, parts);
  const ExpertWeights& one = *calls[0].weights;
  const auto inner = static_cast<std::size_t>(one.gate.n());
  assert(rows == out.rows && one.gate.numerics() == ctx.numerics);
  assert(static_cast<std::int64_t>(x.cols) == one.gate.k() && one.down.k() == one.gate.n());

  // Rows of x, gathered by call.
  const Activations gathered = make_room(ctx, one.gate, rows);
  for (std::size_t i = 0; i < calls.size(); ++i)
    for (std::size_t r = 0; r < calls[i].rows.size(); ++r) {
      const auto row = static_cast<std::size_t>(calls[i].rows[r]);
      assert(row < x.rows);
      put_row(one.gate, x.row(row), gathered.data + (parts[i].first + r) * gathered.stride);
    }

  const Rows h = make_rows(ctx.scratch->take<float>(rows * inner), rows, inner);
  const Rows up = make_rows(ctx.scratch->take<float>(rows * inner), rows, inner);
  double work_ns = 0;
  for (std::size_t i = 0; i < calls.size(); ++i)
    work_ns += cpu::linear_work_ns(one.gate, parts[i].rows);
  const Tasks first = split(ctx, calls.size(), one.gate.panels(), work_ns * 2);
  run_tasks(ctx, first, work_ns * 2, [&](std::size_t i) {
    const Part& part = parts[first.call(i)];
    gate_and_up(part, gathered.of(part), first.first(i), first.last(i), h, up);
  });

  const Activations middle = make_room(ctx, one.down, rows);
  parallel_ranges(ctx, rows, static_cast<double>(rows * inner) / 4,
                  [&](int, std::size_t begin, std::size_t end) {
                    for (std::size_t r = begin; r < end; ++r)
                      put_row(one.down, h.row(r), middle.data + r * middle.stride);
                  });

  const Tasks second = split(ctx, calls.size(), one.down.panels(), work_ns);
  run_tasks(ctx, second, work_ns, [&](std::size_t i) {
    const Part& part = parts[second.call(i)];
    cpu::run_panels(part.weights->down, middle.of(part), second.first(i), second.last(i),
                    {out.row(part.first), part.rows, out.cols, out.stride});
  });
  apply_fault(ctx, "expert_ffn", out.data);
}

}  // namespace troupe::kernels
