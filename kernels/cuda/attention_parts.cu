#include "kernels/cuda/attention_parts.h"

#include <cassert>
#include <vector>

namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

/// A multiprocessor has room for one of these kernels' CTAs, and a large GPU about so many.
constexpr std::int64_t kCtasAtOnce = 132;

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
    if (i >= u.count || u.pieces == 0) return;
    float out = 0;
    SoftmaxFold fold;
    for (std::int64_t piece = 0; piece < u.pieces; ++piece) {
      const std::int64_t at = u.partial + piece * u.count + i;
      if (p.sum[at] == 0) continue;
      const SoftmaxFold::Factors f = fold.add(p.max[at], p.sum[at]);
      out = fma_f32(p.out[at * call.out.dim + d], f.next, out * f.before);
    }
    const AttentionEnd end = AttentionEnd::of(call, u.head_of(call, i), fold);
    u.out_of(call, i)[d] = (out * end.sink) * end.inverse;
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
    u.row = static_cast<std::int32_t>(row);
    u.kv_head = static_cast<std::int32_t>(head);
    u.first = static_cast<std::int32_t>(first);
    u.count = static_cast<std::int32_t>(count);
    u.from = u.all_to = INT32_MAX;
    for (std::int64_t r = row + first / group; r <= row + (first + count - 1) / group; ++r) {
      const std::int32_t to = host_.positions[r] + 1;
      const std::int64_t first = call_.window == 0 ? 0 : to - call_.window;
      const auto from = static_cast<std::int32_t>(std::max<std::int64_t>(0, first));
      u.from = std::min(u.from, from);
      u.all_from = std::max(u.all_from, from);
      u.to = std::max(u.to, to);
      u.all_to = std::min(u.all_to, to);
    }
    return u;
  }

  const AttentionCall& call_;
  const PagedRows& host_;
  std::int64_t queries_;
};

std::int32_t parts_of(const AttentionUnit& u) { return (u.to - 1) / kPart - u.from / kPart + 1; }

/// Some units and what becomes of them; the first piece of each has up to `prefix` parts.
class Pieces {
 public:
  Pieces(const AttentionKernel& kernel, const AttentionCall& call, std::int32_t prefix)
      : kernel_(kernel), call_(call), prefix_(prefix) {}

  /// That wait for being joined.
  std::int32_t partials_of(const AttentionUnit& u) const {
    const std::int32_t pieces = pieces_of(u);
    return pieces == 1 && kernel_.folds ? 0 : pieces;
  }
  std::size_t waiting_bytes(const AttentionUnit& u) const {
    return static_cast<std::size_t>(std::int64_t{partials_of(u)} * u.count * (call_.out.dim + 2)) *
           sizeof(float);
  }

  void compute(Stream& stream, AttentionUnit* units, std::int64_t count) const {
    Stream::Scope scope(stream);
    AttentionWork work;
    std::int64_t partials = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      units[i].pieces = partials_of(units[i]);
      units[i].partial = partials;
      partials += std::int64_t{units[i].pieces} * units[i].count;
      work.piece_count += pieces_of(units[i]);
    }
    const Told<AttentionPiece> told(stream, work.piece_count);
    AttentionPiece* piece = told.host();
    for (std::int64_t i = 0; i < count; ++i) piece = put(units[i], i, piece);
    work.pieces = told.device();
    work.units = staged(stream, units, count);
    work.unit_count = count;
    work.partials = AttentionPartials::room(stream, partials, call_.out.dim);
    kernel_.compute(stream, call_, work);
    if (partials > 0)
      each_number(stream, count, kernel_.queries * call_.out.dim, JoinPieces{call_, work});
  }

 private:
  std::int32_t pieces_of(const AttentionUnit& u) const {
    return std::max(0, parts_of(u) - prefix_) + 1;
  }
  AttentionPiece* put(const AttentionUnit& u, std::int64_t unit, AttentionPiece* to) const {
    const std::int32_t pieces = pieces_of(u);
    std::int32_t part = u.from / kPart;
    for (std::int32_t i = 0; i < pieces; ++i) {
      AttentionPiece piece;
      piece.unit = unit;
      piece.first = part * kPart;
      piece.parts = i == 0 ? std::min(prefix_, parts_of(u)) : 1;
      piece.partial = u.partial + i * u.count;
      piece.whole = u.pieces == 0;
      part += piece.parts;
      *to++ = piece;
    }
    return to;
  }

  const AttentionKernel& kernel_;
  const AttentionCall& call_;
  const std::int32_t prefix_;
};

}  // namespace

AttentionPartials AttentionPartials::room(Stream& stream, std::int64_t count, std::int64_t v_dim) {
  const auto partials = static_cast<std::size_t>(count);
  Scratch& scratch = stream.scratch();
  return {scratch.take<float>(partials * static_cast<std::size_t>(v_dim)),
          scratch.take<float>(partials), scratch.take<float>(partials)};
}

void attention_by(const AttentionKernel& kernel, Stream& stream, const AttentionInputs& in,
                  const PagedRows& where, const Tensor& q, const Tensor& out) {
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
  const Units all(call, where, kernel.queries);
  std::int64_t count = 0, parts = 0;
  all.each([&](const AttentionUnit& u) {
    ++count;
    parts += parts_of(u);
  });
  std::vector<AttentionUnit> units;
  units.reserve(static_cast<std::size_t>(count));
  all.each([&](const AttentionUnit& u) { units.push_back(u); });
  const std::int64_t prefix = kernel.folds ? ceil_div(parts, kCtasAtOnce) : 1;
  const Pieces pieces(kernel, call, static_cast<std::int32_t>(prefix));
  for (std::int64_t first = 0, last = 0; first < count; first = last) {
    std::size_t bytes = pieces.waiting_bytes(units[static_cast<std::size_t>(first)]);
    for (last = first + 1; last < count; ++last)
      if ((bytes += pieces.waiting_bytes(units[static_cast<std::size_t>(last)])) >
          cpu::kWaitingBytes)
        break;
    pieces.compute(stream, units.data() + first, last - first);
  }
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
