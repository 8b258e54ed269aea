#include "kernels/attention.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace troupe::kernels {
namespace {

using cpu::AttentionKernel;
using cpu::kPart;
using cpu::kTile;
using cpu::kUnitQueries;
using cpu::kWaitingBytes;
using cpu::PartialSoftmax;

/// Fewer pieces of work a thread than this, and the context is cut.
constexpr std::int64_t kPiecesAThread = 4;
/// Fewer pieces than threads even so, and units have fewer queries, down to this: what they share
/// is made ready for each of them.
constexpr std::int64_t kUnitQueriesMin = 8;
/// A guess, for what is worth a thread.
constexpr double kFlopsPerNs = 150, kFlopsPerNsReference = 5;

const AttentionKernel& kernel_of(const Stream& stream) {
  if (stream.numerics() == Numerics::kReference) return cpu::kAttentionReference;
  if (sums_in_one_chain(stream.numerics())) return cpu::kAttentionDot;
  switch (stream.family()) {
    case CpuFamily::kAvx2: return cpu::kAttentionAvx2;
    case CpuFamily::kAvx512: return cpu::kAttentionAvx512;
    default: break;
  }
  assert(stream.family() == CpuFamily::kAmx);  // the baseline runs `reference` only
  return cpu::kAttentionAmx;
}

/// Up to Call::unit_queries of the pairs (row, head) that share a sequence and a head of keys.
struct Unit {
  std::int64_t row = 0;              ///< the first of the sequence's rows in the call
  std::int64_t kv_head = 0;
  std::int64_t first = 0, count = 0; ///< of the sequence's pairs, by row, then by head
  std::int32_t from = 0, to = 0;     ///< what any of them sees
  std::int64_t piece = 0;            ///< its first piece, where the context is cut
};

/// Positions [first, last) of a unit's context.
struct Piece {
  std::int64_t unit = 0;
  std::int32_t first = 0, last = 0;
};

struct Call {
  const AttentionKernel& kernel;
  const AttentionInputs& in;
  const PagedRows& where;
  const Tensor& q;
  const Tensor& out;
  std::int64_t unit_queries = kUnitQueries;

  std::int64_t group() const { return q.heads / in.kv_heads; }
  std::int64_t row_of(const Unit& u, std::int64_t i) const {
    return u.row + (u.first + i) / group();
  }
  std::int64_t head_of(const Unit& u, std::int64_t i) const {
    return u.kv_head * group() + (u.first + i) % group();
  }
  std::int32_t to(std::int64_t row) const { return where.positions[row] + 1; }
  std::int32_t from(std::int64_t row) const {
    return in.window == 0 ? 0
                          : static_cast<std::int32_t>(std::max<std::int64_t>(
                                0, where.positions[row] + 1 - in.window));
  }
  const float* query(std::int64_t row, std::int64_t head) const {
    return static_cast<const float*>(q.data) + row * q.row_stride + head * q.head_stride;
  }
  float* result(std::int64_t row, std::int64_t head) const {
    return static_cast<float*>(out.data) + row * out.row_stride + head * out.head_stride;
  }
  /// The rows of positions [first, first + count) in a pool, from `column` on; `zeros` where none
  /// of the unit sees.
  static void slots(const KvPool& pool, const std::int32_t* table, std::int64_t column,
                    const Unit& u, std::int32_t first, std::int32_t count, const std::byte* zeros,
                    const std::byte** rows) {
    const auto size = static_cast<std::int64_t>(dtype_size(pool.dtype));
    const auto* base = static_cast<const std::byte*>(pool.base) + column * size;
    for (std::int32_t i = 0; i < count;) {
      const std::int64_t p = first + i, within = p % pool.block_size;
      if (p < u.from || p >= u.to) {
        rows[i++] = zeros;
        continue;
      }
      const std::int64_t row = table[p / pool.block_size] * pool.block_size + within;
      const std::int64_t left = std::min<std::int64_t>({pool.block_size - within, u.to - p,
                                                        count - i});
      for (std::int64_t j = 0; j < left; ++j) rows[i++] = base + (row + j) * pool.row * size;
    }
  }

  template <class Each>
  void each_unit(const Each& each) const {
    for (std::int64_t row = 0, end = 0; row < q.rows; row = end) {
      for (end = row + 1; end < q.rows && where.tables[end] == where.tables[row];) ++end;
      const std::int64_t pairs = (end - row) * group();
      for (std::int64_t h = 0; h < in.kv_heads; ++h)
        for (std::int64_t first = 0; first < pairs; first += unit_queries) {
          Unit u{row, h, first, std::min(unit_queries, pairs - first), to(row), 0, 0};
          for (std::int64_t r = row_of(u, 0); r <= row_of(u, u.count - 1); ++r) {
            u.from = r == row_of(u, 0) ? from(r) : std::min(u.from, from(r));
            u.to = std::max(u.to, to(r));
          }
          each(u);
        }
    }
  }
};

PartialSoftmax take_partial(Scratch& scratch, std::int64_t queries, std::int64_t v_dim) {
  const auto n = static_cast<std::size_t>(queries);
  return {scratch.take<float>(n * static_cast<std::size_t>(v_dim)), scratch.take<float>(n),
          scratch.take<float>(n)};
}

/// A thread's room.
struct Room {
  Room(Scratch& scratch, const Call& call) {
    const auto queries = static_cast<std::size_t>(kUnitQueries);
    const std::int64_t k_dim = call.q.dim, v_dim = call.out.dim;
    q = scratch.take<std::byte>(queries * static_cast<std::size_t>(call.kernel.query_bytes(k_dim)));
    scores = scratch.take<float>(queries * kTile);
    panel = scratch.take<std::byte>(cpu::kTileRoom);
    from = scratch.take<std::int32_t>(queries);
    to = scratch.take<std::int32_t>(queries);
    keys = scratch.take<const std::byte*>(2 * kTile);
    values = scratch.take<const std::byte*>(kTile);
    const std::size_t widest = static_cast<std::size_t>(std::max(k_dim, v_dim)) * sizeof(float);
    zeros = scratch.take<std::byte>(widest);
    std::memset(zeros, 0, widest);
    for (PartialSoftmax& p : partials) p = take_partial(scratch, kUnitQueries, v_dim);
  }

  std::byte *q, *panel, *zeros;
  float* scores;
  std::int32_t *from, *to;
  const std::byte **keys, **values;
  PartialSoftmax partials[3];
};

void prepare(const Call& call, const Unit& u, const Room& room) {
  const std::int64_t bytes = call.kernel.query_bytes(call.q.dim);
  for (std::int64_t i = 0; i < u.count; ++i) {
    const std::int64_t row = call.row_of(u, i);
    room.from[i] = call.from(row);
    room.to[i] = call.to(row);
    call.kernel.prepare(call.query(row, call.head_of(u, i)), call.q.dim, room.q + i * bytes);
  }
}

void tile(const Call& call, const Unit& u, const Room& room, std::int32_t first,
          const PartialSoftmax& to_write) {
  const std::int32_t* table = call.where.tables[u.row];
  Call::slots(call.in.keys, table, u.kv_head * call.q.dim, u, first, 2 * kTile, room.zeros,
              room.keys);
  Call::slots(call.in.values, table, u.kv_head * call.out.dim, u, first, kTile, room.zeros,
              room.values);
  cpu::TileWork w;
  w.queries = u.count;
  w.k_dim = call.q.dim;
  w.v_dim = call.out.dim;
  w.q = room.q;
  w.from = room.from;
  w.to = room.to;
  w.scale = call.in.scale;
  w.first = first;
  w.keys = room.keys;
  w.values = room.values;
  w.shared = call.in.values.base == call.in.keys.base;
  w.zeros = room.zeros;
  w.dtype = call.in.keys.dtype;
  w.scores = room.scores;
  w.room = room.panel;
  w.to_write = to_write;
  call.kernel.tile(w);
}

/// The tiles of a part, from its first to its last, into `into`, which is of nothing yet.
void part(const Call& call, const Unit& u, const Room& room, std::int32_t first, std::int32_t last,
          const PartialSoftmax& into, const PartialSoftmax& spare) {
  tile(call, u, room, first, into);
  for (std::int32_t t = first + kTile; t < last; t += kTile) {
    tile(call, u, room, t, spare);
    call.kernel.fold(into, spare, u.count, call.out.dim);
  }
}

/// Divides; `i` counts the unit's queries.
void finish(const Call& call, const Unit& u, const PartialSoftmax& total, std::int64_t i) {
  const std::int64_t v_dim = call.out.dim, head = call.head_of(u, i);
  PartialSoftmax one = {total.out + i * v_dim, total.max + i, total.sum + i};
  if (call.in.sinks != nullptr) {
    float sink = call.in.sinks[head], sum = 1;
    call.kernel.fold(one, {nullptr, &sink, &sum}, 1, v_dim);
  }
  const float inverse = 1.0f / one.sum[0];
  float* to = call.result(call.row_of(u, i), head);
  for (std::int64_t d = 0; d < v_dim; ++d) to[d] = one.out[d] * inverse;
}

void whole(const Call& call, const Unit& u, Room& room) {
  prepare(call, u, room);
  PartialSoftmax &total = room.partials[0], &next = room.partials[1];
  bool fresh = true;
  for (std::int32_t p = u.from / kPart * kPart; p < u.to; p += kPart) {
    const std::int32_t first = std::max(p, u.from / kTile * kTile);
    const std::int32_t last = std::min(p + kPart, u.to);
    part(call, u, room, first, last, fresh ? total : next, room.partials[2]);
    if (!fresh) call.kernel.fold(total, next, u.count, call.out.dim);
    fresh = false;
  }
  for (std::int64_t i = 0; i < u.count; ++i) finish(call, u, total, i);
}

/// The pieces of a unit joined in the order that `whole` goes, for queries [first, last).
void join(const Call& call, const Unit& u, const Piece* pieces, const PartialSoftmax* partials,
          std::int64_t count, std::int64_t first, std::int64_t last) {
  const std::int64_t v_dim = call.out.dim;
  const auto at = [&](std::int64_t piece) {
    const PartialSoftmax& p = partials[piece];
    return PartialSoftmax{p.out + first * v_dim, p.max + first, p.sum + first};
  };
  for (std::int64_t i = 0, begin = 0; i < count; i = begin) {
    for (begin = i + 1; begin < count && pieces[begin].first / kPart == pieces[i].first / kPart;
         ++begin)
      call.kernel.fold(at(i), at(begin), last - first, v_dim);
    if (i > 0) call.kernel.fold(at(0), at(i), last - first, v_dim);
  }
  for (std::int64_t i = first; i < last; ++i) finish(call, u, partials[0], i);
}

/// How a call's work is handed to threads.
struct Plan {
  Unit* units = nullptr;
  std::int64_t count = 0;
  Room* rooms = nullptr;  ///< [threads]
  bool parallel = false;
  std::int32_t step = 0;  ///< of the pieces that the context is cut to; 0: units stay whole
};

template <class Body>
void share(Stream& stream, const Plan& plan, std::int64_t count, const Body& body) {
  if (!plan.parallel) {
    for (std::int64_t i = 0; i < count; ++i) body(0, i);
    return;
  }
  stream.pool()->parallel_for(static_cast<std::size_t>(count), [&](int thread, std::size_t i) {
    assert(float_mode_is_set());
    body(thread, static_cast<std::int64_t>(i));
  });
}

/// What there is to do.
struct Work {
  std::int64_t units = 0, parts = 0, tiles = 0;
  double flops = 0, most = 0;  ///< of all units, and of the largest

  explicit Work(const Call& call) {
    call.each_unit([&](const Unit& u) {
      const double of_unit =
          2.0 * static_cast<double>(u.count * (u.to - u.from) * (call.q.dim + call.out.dim));
      flops += of_unit;
      most = std::max(most, of_unit);
      ++units;
      parts += (u.to - 1) / kPart - u.from / kPart + 1;
      tiles += (u.to - 1) / kTile - u.from / kTile + 1;
    });
  }
};

Plan make_plan(Stream& stream, Call& call) {
  Plan plan;
  Work work(call);
  const double per_ns =
      stream.numerics() == Numerics::kReference ? kFlopsPerNsReference : kFlopsPerNs;
  const int threads = worthwhile_threads(stream, work.flops / per_ns);
  plan.parallel = stream.pool() != nullptr && work.flops / per_ns >= kParallelAboveNs;
  for (; work.tiles < threads && call.unit_queries > kUnitQueriesMin; work = Work(call))
    call.unit_queries /= 2;
  plan.count = work.units;
  plan.units = stream.scratch().take<Unit>(static_cast<std::size_t>(plan.count));
  std::int64_t next = 0;
  call.each_unit([&](const Unit& u) { plan.units[next++] = u; });
  const std::int64_t enough = threads == 1 ? 1 : kPiecesAThread * threads;
  if (plan.count < enough)
    plan.step = work.parts < enough ? kTile : kPart;
  else if (work.most / per_ns > kPieceNs)
    plan.step = kPart;
  plan.rooms = stream.scratch().take<Room>(static_cast<std::size_t>(threads));
  for (int t = 0; t < threads; ++t) plan.rooms[t] = Room(stream.scratch(), call);
  return plan;
}

/// The context of units [first, last) in pieces, which are then joined.
void in_pieces(Stream& stream, const Call& call, const Plan& plan, std::int64_t first,
               std::int64_t last) {
  constexpr std::int64_t kJoined = 16;  // queries
  Scratch::Scope scope(stream.scratch());
  std::int64_t count = 0;
  for (std::int64_t i = first; i < last; ++i) {
    Unit& u = plan.units[i];
    u.piece = count;
    count += (u.to - 1) / plan.step - u.from / plan.step + 1;
  }
  auto* pieces = stream.scratch().take<Piece>(static_cast<std::size_t>(count));
  auto* partials = stream.scratch().take<PartialSoftmax>(static_cast<std::size_t>(count));
  for (std::int64_t i = first; i < last; ++i) {
    const Unit& u = plan.units[i];
    std::int64_t at = u.piece;
    for (std::int32_t p = u.from / plan.step * plan.step; p < u.to; p += plan.step, ++at) {
      pieces[at] = {i, std::max(p, u.from / kTile * kTile), std::min(p + plan.step, u.to)};
      partials[at] = take_partial(stream.scratch(), u.count, call.out.dim);
    }
  }
  share(stream, plan, count, [&](int thread, std::int64_t i) {
    const Piece& piece = pieces[i];
    const Unit& u = plan.units[piece.unit];
    Room& room = plan.rooms[thread];
    prepare(call, u, room);
    part(call, u, room, piece.first, piece.last, partials[i], room.partials[0]);
  });
  constexpr std::int64_t kShares = kUnitQueries / kJoined;
  share(stream, plan, (last - first) * kShares, [&](int, std::int64_t i) {
    const Unit& u = plan.units[first + i / kShares];
    const std::int64_t q = i % kShares * kJoined;
    const std::int64_t end = first + i / kShares + 1 < last ? (&u)[1].piece : count;
    if (q < u.count)
      join(call, u, pieces + u.piece, partials + u.piece, end - u.piece, q,
           std::min(q + kJoined, u.count));
  });
}

}  // namespace

void cpu::attention(Stream& stream, const AttentionInputs& in, const PagedRows& where,
                    const Tensor& q, const Tensor& out) {
  assert(float_mode_is_set());
  assert(q.rows == out.rows && q.heads == out.heads && q.heads % in.kv_heads == 0);
  assert(in.keys.dtype == in.values.dtype && in.keys.row >= in.kv_heads * q.dim);
  assert(in.values.row >= in.kv_heads * out.dim);
  assert((in.keys.dtype == DType::kF32) == (stream.numerics() == Numerics::kReference));
  Scratch::Scope scope(stream.scratch());
  Call call{kernel_of(stream), in, where, q, out};
  const Plan plan = make_plan(stream, call);
  if (plan.step == 0) {
    share(stream, plan, plan.count, [&](int thread, std::int64_t i) {
      whole(call, plan.units[i], plan.rooms[thread]);
    });
  } else {
    const auto waiting = [&](const Unit& u) {
      const std::int64_t pieces = (u.to - 1) / plan.step - u.from / plan.step + 1;
      return static_cast<std::size_t>(pieces * u.count * (out.dim + 2)) * sizeof(float);
    };
    for (std::int64_t first = 0, last = 0; first < plan.count; first = last) {
      std::size_t bytes = waiting(plan.units[first]);
      for (last = first + 1; last < plan.count; ++last)
        if ((bytes += waiting(plan.units[last])) > kWaitingBytes) break;
      in_pieces(stream, call, plan, first, last);
    }
  }
}

}  // namespace troupe::kernels
