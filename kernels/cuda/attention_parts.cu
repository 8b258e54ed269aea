#include "kernels/cuda/attention_parts.h"

#include <cassert>
#include <vector>

namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

/// A thread a number of the result: folds the pieces of its query in their order, and divides.
/// Bytes: 4 a number and piece and 4 written; a piece's maximum and sum, which all its numbers
/// share, come from a cache. Operations, a number and piece: two exp, two fma. Bound by memory, or
/// by the launch.
struct JoinPieces {
  AttentionCall call;
  AttentionWork work;

  DEVICE void operator()(std::int64_t unit, std::int64_t col) const {
    const AttentionUnit& u = work.units[unit];
    const AttentionPartials& p = work.partials;
    const int i = static_cast<int>(col / call.out.dim);
    const std::int64_t d = col % call.out.dim;
    if (i >= u.count) return;
    float out = 0, max = 0, sum = 0;
    bool fresh = true;
    const auto fold = [&](float next_out, float next_max, float next_sum) {
      const float m = max > next_max ? max : next_max;
      const float x = exp_f32(next_max - m), y = exp_f32(max - m);
      out = fresh ? next_out : fma_f32(next_out, x, out * y);
      sum = fresh ? next_sum : fma_f32(next_sum, x, sum * y);
      max = fresh ? next_max : m;
      fresh = false;
    };
    for (std::int64_t piece = u.piece; piece < u.piece + u.pieces; ++piece) {
      const std::int64_t at = piece * p.queries + i;
      if (p.sum[at] != 0) fold(p.out[at * call.out.dim + d], p.max[at], p.sum[at]);
    }
    const std::int64_t head = u.head_of(call, i);
    if (call.sinks != nullptr) fold(0, call.sinks[head], 1);
    head_at<float>(call.out, u.row_of(call, i), head)[d] = out * (1.0f / sum);
  }
};

/// Cuts a call into units.
class Units {
 public:
  Units(const AttentionCall& call, const PagedRows& host, std::int64_t queries)
      : call_(call), host_(host), queries_(queries) {}

  template <class Each>
  void each(const Each& each) const {
    const std::int64_t group = call_.q.heads / call_.kv_heads;
    for (std::int64_t row = 0, end = 0; row < call_.q.rows; row = end) {
      for (end = row + 1; end < call_.q.rows && host_.tables[end] == host_.tables[row];) ++end;
      const std::int64_t pairs = (end - row) * group;
      for (std::int64_t h = 0; h < call_.kv_heads; ++h)
        for (std::int64_t first = 0; first < pairs; first += queries_)
          each(unit(row, h, first, std::min(queries_, pairs - first), group));
    }
  }

 private:
  AttentionUnit unit(std::int64_t row, std::int64_t head, std::int64_t first, std::int64_t count,
                     std::int64_t group) const {
    AttentionUnit u;
    u.row = row;
    u.kv_head = head;
    u.first = first;
    u.count = static_cast<std::int32_t>(count);
    u.from = INT32_MAX;
    for (std::int64_t r = row + first / group; r <= row + (first + count - 1) / group; ++r) {
      const std::int32_t to = host_.positions[r] + 1;
      const std::int64_t from = call_.window == 0 ? 0 : to - call_.window;
      u.from = std::min(u.from, static_cast<std::int32_t>(std::max<std::int64_t>(0, from)));
      u.to = std::max(u.to, to);
    }
    u.pieces = (u.to - 1) / kPart - u.from / kPart + 1;
    return u;
  }

  const AttentionCall& call_;
  const PagedRows& host_;
  std::int64_t queries_;
};

/// The parts of some units, and what becomes of them.
void compute(ComputeParts* parts, Stream& stream, const AttentionCall& call, AttentionUnit* units,
             std::int64_t count, std::int64_t queries) {
  Stream::Scope scope(stream);
  AttentionWork work;
  for (std::int64_t i = 0; i < count; ++i) {
    units[i].piece = work.piece_count;
    work.piece_count += units[i].pieces;
  }
  const Told<AttentionPiece> told(stream, work.piece_count);
  AttentionPiece* pieces = told.host();
  work.units = staged(stream, units, count);
  work.unit_count = count;
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int32_t p = 0; p < units[i].pieces; ++p)
      *pieces++ = {i, (units[i].from / kPart + p) * kPart};
  work.pieces = told.device();
  work.partials = AttentionPartials::room(stream, work.piece_count, queries, call.out.dim);
  parts(stream, call, work);
  each_number(stream, count, queries * call.out.dim, JoinPieces{call, work});
}

}  // namespace

AttentionPartials AttentionPartials::room(Stream& stream, std::int64_t pieces, std::int64_t queries,
                                          std::int64_t v_dim) {
  const auto count = static_cast<std::size_t>(pieces * queries);
  Scratch& scratch = stream.scratch();
  return {scratch.take<float>(count * static_cast<std::size_t>(v_dim)), scratch.take<float>(count),
          scratch.take<float>(count), queries};
}

void attention_by(ComputeParts* parts, std::int64_t queries, Stream& stream,
                  const AttentionInputs& in, const PagedRows& where, const Tensor& q,
                  const Tensor& out) {
  assert(q.rows == out.rows && q.heads == out.heads && q.heads % in.kv_heads == 0);
  assert(in.keys.dtype == in.values.dtype && in.keys.row >= in.kv_heads * q.dim);
  assert(in.values.row >= in.kv_heads * out.dim && in.keys.block_size == in.values.block_size);
  assert(in.keys.dtype == DType::kBf16 || in.keys.dtype == DType::kF8E4M3);
  Stream::Scope scope(stream);
  AttentionCall call{in.keys,
                     in.values,
                     in.kv_heads,
                     in.scale,
                     in.window,
                     in.sinks,
                     staged_rows(stream, in.keys, where, q.rows),
                     q,
                     out};
  const Units all(call, where, queries);
  std::int64_t count = 0;
  all.each([&](const AttentionUnit&) { ++count; });
  std::vector<AttentionUnit> units;
  units.reserve(static_cast<std::size_t>(count));
  all.each([&](const AttentionUnit& u) { units.push_back(u); });
  const auto waiting = [&](const AttentionUnit& u) {
    return static_cast<std::size_t>(u.pieces * queries * (out.dim + 2)) * sizeof(float);
  };
  for (std::int64_t first = 0, last = 0; first < count; first = last) {
    std::size_t bytes = waiting(units[static_cast<std::size_t>(first)]);
    for (last = first + 1; last < count; ++last)
      if ((bytes += waiting(units[static_cast<std::size_t>(last)])) > cpu::kWaitingBytes) break;
    compute(parts, stream, call, units.data() + first, last - first, queries);
  }
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
