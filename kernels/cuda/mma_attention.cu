#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/mma_attention.h"
#include "kernels/cuda/mma_rows.h"
#include "kernels/cuda/ptx.h"

/// Attention with tensor cores (`cuda_mma`): the same kernel and the same tiles for a generated row
/// and for a prompt.
///
/// A CTA for up to 64 queries, 32 where a GPU has too little shared memory, and some parts of 1,024
/// positions of their context. Of each tile of 32:
///
///     all: keys and values ──► shared, while the tile before is computed if there is room for two
///     8 warps, 16 queries x 16 (8) positions each: q K^T ──► scores
///     8 threads a query: the maximum so far, the weights ──► bf16 in shared, what O shrinks by
///     8 warps, eight of every 64 columns each: O = O shrunk + weights V, in registers
///
/// Registers hold one O. Where there are several parts, what is before a part lies where the result
/// goes, or the partial, and at the part's end each thread folds its numbers into it.
///
/// Bytes: keys and values of the parts once for 64 queries (MLA: a value is a part of its key), and
/// 8 a number of O and part, within the second level cache. Of a bf16 cache they are copied beside
/// the threads; e4m3 goes through registers. Operations, a position: 2 (k_dim + v_dim) for each
/// query; those of one MLA head's 64 queries are 120 a byte.
///
/// By arithmetic, V3 on an H100, in cycles of a tile of 64 queries: shared memory, 128 bytes a
/// cycle, is busy 3,900 (2,304 of them with what ldmatrix reads for scores), the tensor cores 1,740
/// at what mma.sync gives. Between barriers one waits for the other: about 4,400, in which 4.5
/// million operations are 230 TFLOP/s. So prompts and a row's 128 heads are bound by shared memory,
/// and MLA's decode reads its keys at a third of the memory's bandwidth: more takes instructions
/// that read their operands from shared memory themselves (wgmma_attention.cu, on sm_90). Heads of
/// 128 and few queries are bound by memory. Measured on an H100: of MLA a prompt of 8,192 positions
/// 57 TFLOP/s and 128 sequences of 4,096 positions 216 GB/s, bound by the instructions around them.
namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

constexpr int kMmaWarps = 8;
constexpr int kMmaColumns = 8;  ///< times eight, of a result, that a warp has
constexpr std::uint32_t kWholeWarp = 0xffffffffu;

template <bool kFp8, int kQueries>
struct MmaPart {
  static constexpr int kThreads = kMmaWarps * 32;
  static constexpr int kSixteens = kQueries / 16;
  static constexpr int kTurns = kQueries * 8 / kThreads;  ///< queries of eight threads
  // Of scores: warps beside each other, and what each has.
  static constexpr int kAcross = kMmaWarps / kSixteens, kPositions = kMmaTile / kAcross;
  static constexpr std::size_t kRoom = Rows::room(kQueries), kScoresAt = kRoom * 16;
  static constexpr std::size_t kWeightsAt = kScoresAt + kQueries * Rows::kScores * 16;
  static constexpr std::size_t kFactorsAt = kWeightsAt + kQueries * Rows::kWeights * 16;
  static constexpr std::size_t kSoftmaxAt = kFactorsAt + kQueries * 16;
  static constexpr std::size_t kSeenAt = kSoftmaxAt + kQueries * 24;
  static constexpr std::size_t kSharedBytes = kSeenAt + kQueries * 8;
  static constexpr bool kMeets = true;

  AttentionCall call;
  AttentionWork work;
  Rows rows;
  bool aligned = false;  ///< rows of the cache lie on boundaries of sixteen bytes

  struct Room {
    Shared<Quad> tiles;           ///< [queries][key], then each tile's [tile][key], [tile][value]
    Shared<float> scores;         ///< [queries][4 kScores]
    Shared<Quad> scores4;         ///< the same
    Shared<Quad> weights;         ///< [queries][kWeights], bf16
    Shared<std::uint32_t> pairs;  ///< the same
    Shared<float> factors;        ///< [queries] of a tile; or [4][queries] of a part's end
    Shared<float> softmax;        ///< [max, sum][3][queries]: softmax_at()
    Shared<std::int32_t> seen;    ///< [from, to][queries]; a query that is not there sees nothing
  };
  /// Of a result, rows l / 4 and + 8 of 16 queries and columns 2 (l % 4) and + 1 of eight.
  using Out = float[kSixteens][kMmaColumns][4];

  DEVICE void operator()(Cta& cta) const {
    const AttentionPiece& piece = work.pieces[cta.block_x()];
    const AttentionUnit& u = work.units[piece.unit];
    const Room room = {cta.shared<Quad>(0, kRoom),
                       cta.shared<float>(kScoresAt, kQueries * Rows::kScores * 4),
                       cta.shared<Quad>(kScoresAt, kQueries * Rows::kScores),
                       cta.shared<Quad>(kWeightsAt, kQueries * Rows::kWeights),
                       cta.shared<std::uint32_t>(kWeightsAt, kQueries * Rows::kWeights * 4),
                       cta.shared<float>(kFactorsAt, kQueries * 4),
                       cta.shared<float>(kSoftmaxAt, kQueries * 6),
                       cta.shared<std::int32_t>(kSeenAt, kQueries * 2)};
    load_queries(cta, u, room);
    if (const int query = cta.thread(); query < kQueries) {
      const bool any = query < u.count;
      room.seen[query] = any ? call.from(u.row_of(call, query)) : 0;
      room.seen[kQueries + query] = any ? call.to(u.row_of(call, query)) : 0;
      for (int i = 0; i < 3; ++i) put_softmax({}, i, query, room);
    }
    Out out = {};
    const std::int32_t end = piece.first + piece.parts * kPart;
    const std::int32_t last = end < u.to ? end : u.to;
    const std::int32_t begin = piece.first > u.from ? piece.first : u.from / kMmaTile * kMmaTile;
    load(cta, u, begin, room);
    ptx::commit_copies(cta);
    for (std::int32_t first = begin; first < last; first += kMmaTile) {
      const bool more = first + kMmaTile < last;
      if (rows.stages == 2) {
        if (more) load(cta, u, first + kMmaTile, room);
        ptx::commit_copies(cta);
        ptx::wait_copies<1>(cta);
      } else {
        ptx::wait_copies<0>(cta);
      }
      cta.sync();
      score(cta, u, first, room);
      cta.sync();
      weigh(cta, first, room);
      cta.sync();
      add_values(cta, u, first, room, out);
      cta.sync();
      if (rows.stages == 1 && more) {
        load(cta, u, first + kMmaTile, room);
        ptx::commit_copies(cta);
      }
      if (!more || (first + kMmaTile) % kPart == 0)
        end_part(cta, u, piece, first, !more, room, out);
    }
    ptx::wait_copies<0>(cta);
  }

  /// A query's softmax of the parts before is the last. Of a part, as it is before a tile and
  /// behind it, it lies in turn at two places: eight threads read it while one of them writes.
  static constexpr int kBefore = 2;
  DEVICE static int place_of(std::int32_t tile) { return tile / kMmaTile % 2; }
  DEVICE static SoftmaxFold softmax_at(int place, int query, const Room& room) {
    return SoftmaxFold::of(room.softmax[place * kQueries + query],
                           room.softmax[(3 + place) * kQueries + query]);
  }
  DEVICE static void put_softmax(const SoftmaxFold& f, int place, int query, const Room& room) {
    room.softmax[place * kQueries + query] = f.max;
    room.softmax[(3 + place) * kQueries + query] = f.sum;
  }

  /// Where a tile's keys are, and its values behind them.
  DEVICE int keys_at(std::int32_t first) const {
    return kQueries * rows.key + (rows.stages == 2 ? place_of(first) : 0) * rows.tile();
  }
  DEVICE int k_dim() const { return static_cast<int>(call.q.dim); }
  DEVICE int v_dim() const { return static_cast<int>(call.out.dim); }
  DEVICE static int query_of(Cta& cta, int turn) { return turn * kThreads / 8 + cta.thread() / 8; }

  /// Eight numbers from column `at` on as bf16, of `dim` that there are.
  template <class Number>
  DEVICE static Quad eight(int at, int dim, const Number& number) {
    Quad q;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = at + 2 * j;
      q.words[j] = round_pair(i < dim ? number(i) : 0.0f, i + 1 < dim ? number(i + 1) : 0.0f);
    }
    return q;
  }

  DEVICE void load_queries(Cta& cta, const AttentionUnit& u, const Room& room) const {
    const int quads = rows.key - 1;
    for (int query = cta.warp(); query < kQueries; query += kMmaWarps) {
      const bool any = query < u.count;
      const float* q =
          any ? head_at<const float>(call.q, u.row_of(call, query), u.head_of(call, query))
              : nullptr;
      for (int c = cta.lane(); c < quads; c += 32)
        room.tiles[query * rows.key + c] =
            eight(c * 8, any ? k_dim() : 0, [&](int i) { return q[i]; });
    }
  }

  /// A tile's keys and values; zeros where no query sees.
  DEVICE void load(Cta& cta, const AttentionUnit& u, std::int32_t first,
                   const Room& room) const {
    const std::int32_t* table = call.where.tables[u.row];
    const int keys = keys_at(first);
    const int values = keys + kMmaTile * rows.key;
    for (int i = cta.warp(); i < kMmaTile; i += kMmaWarps) {
      const std::int32_t p = first + i;
      const bool any = p >= u.from && p < u.to;
      const std::int64_t slot = any ? slot_of(call.keys, table, p) : 0;
      load_row(cta, any ? kv_slot(call.keys, slot, u.kv_head * call.q.dim) : nullptr, k_dim(),
               rows.key - 1, keys + i * rows.key, room);
      if (rows.value > 0)
        load_row(cta, any ? kv_slot(call.values, slot, u.kv_head * call.out.dim) : nullptr,
                 v_dim(), (v_dim() + 7) / 8, values + i * rows.value, room);
    }
  }

  /// A warp's row of `dim` numbers, null for zeros, to `quads` times sixteen bytes.
  DEVICE void load_row(Cta& cta, const std::byte* from, int dim, int quads, int to,
                       const Room& room) const {
    for (int c = cta.lane(); c < quads; c += 32) {
      const bool any = from != nullptr && c * 8 < dim;
      if (!kFp8 && aligned) {
        ptx::copy_later(cta, room.tiles, to + c, any ? from + c * 16 : nullptr);
      } else if (kFp8 && aligned) {
        if (c % 2 != 0) continue;
        const Quad codes = any ? cta.load_quad(from + c * 8) : Quad{{0, 0, 0, 0}};
        const auto number = [&](int i) {
          return e4m3_to_float(static_cast<std::uint8_t>(codes.words[i / 4] >> (i % 4 * 8)));
        };
        room.tiles[to + c] = eight(0, 16, number);
        if (c + 1 < quads) room.tiles[to + c + 1] = eight(8, 16, number);
      } else {
        room.tiles[to + c] = eight(c * 8, any ? dim : 0, [&](int i) {
          return kv_number(from, kFp8 ? DType::kF8E4M3 : DType::kBf16, i);
        });
      }
    }
  }

  /// A warp's 16 queries with its positions.
  DEVICE void score(Cta& cta, const AttentionUnit& u, std::int32_t first, const Room& room) const {
    const int lane = cta.lane();
    const int query = cta.warp() / kAcross * 16, position = cta.warp() % kAcross * kPositions;
    if (query >= u.count) return;
    const int keys = keys_at(first);
    const int q = (query + lane % 16) * rows.key + lane / 16;
    const int k = keys + (position + lane % 8) * rows.key + lane / 8;
    float sums[kPositions / 8][4] = {};
#pragma unroll 2
    for (int c = 0; c + 1 < rows.key; c += 4) {
      std::uint32_t a[4], more[4];
      ptx::ldmatrix(cta, room.tiles, q + c, a);
      ptx::ldmatrix(cta, room.tiles, q + c + 2, more);
#pragma unroll
      for (int n = 0; n < kPositions / 8; ++n) {
        std::uint32_t b[4];
        ptx::ldmatrix(cta, room.tiles, k + n * 8 * rows.key + c, b);
        ptx::mma(cta, a, b[0], b[1], sums[n]);
        ptx::mma(cta, more, b[2], b[3], sums[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < kPositions / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        room.scores[(query + lane / 4 + e / 2 * 8) * Rows::kScores * 4 + position + n * 8 +
                    lane % 4 * 2 + e % 2] = call.scale * sums[n][e];
  }

  DEVICE void weigh(Cta& cta, std::int32_t first, const Room& room) const {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) weigh(cta, first, query_of(cta, turn), room);
  }

  /// Eight threads' query: scores become weights, and what is before them shrinks.
  DEVICE void weigh(Cta& cta, std::int32_t first, int query, const Room& room) const {
    const int of_eight = cta.thread() % 8;
    SoftmaxFold part = softmax_at(place_of(first), query, room);
    const std::int32_t at = first + of_eight * 4;
    const std::int32_t from = room.seen[query], to = room.seen[kQueries + query];
    float p[4] = {0, 0, 0, 0};
    float max = -__builtin_inff();
    if (to > 0) {
      const Quad four = room.scores4[query * Rows::kScores + of_eight];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[i] = std::bit_cast<float>(four.words[i]);
        if (at + i >= from && at + i < to) max = max > p[i] ? max : p[i];
      }
    }
#pragma unroll
    for (int apart = 1; apart < 8; apart *= 2) {
      const float other = cta.shuffle(kWholeWarp, max, cta.lane() ^ apart);
      max = max > other ? max : other;
    }
    if (!part.fresh) max = part.max > max ? part.max : max;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool sees = at + i >= from && at + i < to;
      p[i] = sees ? bf(exp_f32(p[i] - max)) : 0.0f;
    }
    float sum = ((p[0] + p[1]) + p[2]) + p[3];
#pragma unroll
    for (int apart = 1; apart < 8; apart *= 2)
      sum = sum + cta.shuffle(kWholeWarp, sum, cta.lane() ^ apart);
    float factor = 1;
    if (from < first + kMmaTile && to > first) {
      if (!part.fresh) factor = exp_f32(part.max - max);
      part.sum = part.fresh ? sum : fma_f32(part.sum, factor, sum);
      part.max = max;
    }
    room.pairs[query * Rows::kWeights * 4 + of_eight * 2] = round_pair(p[0], p[1]);
    room.pairs[query * Rows::kWeights * 4 + of_eight * 2 + 1] = round_pair(p[2], p[3]);
    if (of_eight != 0) return;
    room.factors[query] = factor;
    put_softmax(part, 1 - place_of(first), query, room);
  }

  DEVICE void add_values(Cta& cta, const AttentionUnit& u, std::int32_t first,
                         const Room& room, Out& out) const {
    const int lane = cta.lane();
    const bool masked = !u.sees_all(first, first + kMmaTile);
    const int keys = keys_at(first);
    const int values = rows.value > 0 ? keys + kMmaTile * rows.key : keys;
    const int row = rows.value > 0 ? rows.value : rows.key;
    std::uint32_t weights[kSixteens][2][4];
#pragma unroll
    for (int m = 0; m < kSixteens; ++m) {
      if (m * 16 >= u.count) continue;
      shrink(cta, m, room, out[m]);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        ptx::ldmatrix(cta, room.weights,
                      (m * 16 + lane % 16) * Rows::kWeights + half * 2 + lane / 16,
                      weights[m][half]);
    }
#pragma unroll
    for (int c = 0; c < kMmaColumns; ++c) {
      const int column = c * kMmaWarps + cta.warp();
      if (column * 8 >= v_dim()) continue;
      std::uint32_t v[4];
      ptx::ldmatrix_trans(cta, room.tiles, values + lane * row + column, v);
      const bool apart = masked && ptx::any(cta, !finite(v));
#pragma unroll
      for (int m = 0; m < kSixteens; ++m) {
        if (m * 16 >= u.count) continue;
        if (apart) {
          add_apart(cta, u, room, first, m, weights[m], v, out[m][c]);
          continue;
        }
        ptx::mma(cta, weights[m][0], v[0], v[1], out[m][c]);
        ptx::mma(cta, weights[m][1], v[2], v[3], out[m][c]);
      }
    }
  }

  /// A warp's columns of 16 queries, unless nothing shrinks: maxima seldom grow.
  DEVICE void shrink(Cta& cta, int m, const Room& room, float (&out)[kMmaColumns][4]) const {
    const float factors[2] = {room.factors[m * 16 + cta.lane() / 4],
                              room.factors[m * 16 + cta.lane() / 4 + 8]};
    if (!ptx::any(cta, factors[0] != 1 || factors[1] != 1)) return;
#pragma unroll
    for (int c = 0; c < kMmaColumns; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[c][e] = out[c][e] * factors[e / 2];
  }

  DEVICE static bool finite(const std::uint32_t (&pairs)[4]) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      all = all && (pairs[i] & 0x7f80u) != 0x7f80u && (pairs[i] & 0x7f800000u) != 0x7f800000u;
    return all;
  }

  /// Row by row of the queries, each with zeros where it does not see, whatever lies there.
  DEVICE void add_apart(Cta& cta, const AttentionUnit& u, const Room& room, std::int32_t first,
                        int m, const std::uint32_t (&weights)[2][4], const std::uint32_t (&v)[4],
                        float (&out)[4]) const {
    const float before[4] = {out[0], out[1], out[2], out[3]};
    const std::int32_t last = u.row_of(call, u.count - 1);
    for (std::int32_t r = u.row_of(call, 0); r <= last; ++r) {
      std::uint32_t seen[4];
      const std::int32_t from = call.from(r) - first, to = call.to(r) - first;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int p = i * 8 + cta.lane() % 4 * 2;
        seen[i] = (p >= from && p < to ? v[i] & 0xffffu : 0u) |
                  (p + 1 >= from && p + 1 < to ? v[i] & 0xffff0000u : 0u);
      }
      float sums[4] = {before[0], before[1], before[2], before[3]};
      ptx::mma(cta, weights[0], seen[0], seen[1], sums);
      ptx::mma(cta, weights[1], seen[2], seen[3], sums);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (room.seen[kQueries + m * 16 + cta.lane() / 4 + e / 2 * 8] == call.to(r))
          out[e] = sums[e];
    }
  }

  /// Folds O into what is before it, and begins a new one. Behind a barrier.
  DEVICE void end_part(Cta& cta, const AttentionUnit& u, const AttentionPiece& piece,
                       std::int32_t tile, bool last, const Room& room, Out& out) const {
    if (cta.thread() < kQueries)
      end_query(u, piece, cta.thread(), tile, last, room);
    cta.sync();
#pragma unroll
    for (int m = 0; m < kSixteens; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = m * 16 + half * 8 + cta.lane() / 4;
        if (query >= u.count) continue;
        float* to = piece.whole ? u.out_of(call, query)
                                : work.partials.out + (piece.partial + query) * call.out.dim;
        const float next = room.factors[query], before = room.factors[kQueries + query];
        const float sink = room.factors[2 * kQueries + query];
        const float inverse = room.factors[3 * kQueries + query];
#pragma unroll
        for (int c = 0; c < kMmaColumns; ++c)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int d = (c * kMmaWarps + cta.warp()) * 8 + cta.lane() % 4 * 2 + e;
            if (d >= v_dim()) continue;
            float value = out[m][c][half * 2 + e];
            if (before >= 0) value = fma_f32(value, next, to[d] * before);
            to[d] = (value * sink) * inverse;
          }
      }
#pragma unroll
    for (int m = 0; m < kSixteens; ++m)
#pragma unroll
      for (int c = 0; c < kMmaColumns; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[m][c][e] = 0;
  }

  /// What a query's O is multiplied with, and what is before it: -1 where nothing is.
  DEVICE void end_query(const AttentionUnit& u, const AttentionPiece& piece, int query,
                        std::int32_t tile, bool last, const Room& room) const {
    const int place = 1 - place_of(tile);
    const SoftmaxFold part = softmax_at(place, query, room);
    SoftmaxFold before = softmax_at(kBefore, query, room);
    const bool fresh = before.fresh;
    SoftmaxFold::Factors f = {0, 1};
    if (!part.fresh) f = before.add(part.max, part.sum);
    put_softmax({}, place, query, room);
    put_softmax(before, kBefore, query, room);
    AttentionEnd end;
    if (last && query < u.count) {
      if (piece.whole) {
        end = AttentionEnd::of(call, u.head_of(call, query), before);
      } else {
        work.partials.max[piece.partial + query] = before.max;
        work.partials.sum[piece.partial + query] = before.sum;
      }
    }
    room.factors[query] = f.next;
    room.factors[kQueries + query] = fresh ? -1.0f : f.before;
    room.factors[2 * kQueries + query] = end.sink;
    room.factors[3 * kQueries + query] = end.inverse;
  }
};

bool values_are_keys(const AttentionCall& call) {
  return call.values.base == call.keys.base && call.values.row == call.keys.row &&
         call.kv_heads == 1 && call.out.dim <= call.q.dim;
}

Rows rows_of(const AttentionCall& call, int queries) {
  return Rows::of(queries, call.q.dim, call.out.dim, values_are_keys(call));
}

bool on_sixteen(const KvPool& pool, std::int64_t of_head) {
  const auto size = static_cast<std::int64_t>(dtype_size(pool.dtype));
  return reinterpret_cast<std::uintptr_t>(pool.base) % 16 == 0 && pool.row * size % 16 == 0 &&
         of_head * size % 16 == 0;
}

template <int kQueries>
void mma_parts(Stream& stream, const AttentionCall& call, const AttentionWork& work) {
  const Rows rows = rows_of(call, kQueries);
  const bool aligned = on_sixteen(call.keys, call.q.dim) && on_sixteen(call.values, call.out.dim);
  if (call.keys.dtype == DType::kF8E4M3)
    launch(stream, {work.piece_count}, MmaPart<true, kQueries>{call, work, rows, aligned});
  else
    launch(stream, {work.piece_count}, MmaPart<false, kQueries>{call, work, rows, aligned});
}

}  // namespace

bool mma_attention(Stream& stream, const AttentionInputs& in, const PagedRows& where,
                   const Tensor& q, const Tensor& out) {
  constexpr int kMany = 64, kFew = 32;
  if (out.dim > kMmaColumns * kMmaWarps * 8) return false;
  if (wgmma_attention(stream, in, where, q, out)) return true;
  AttentionCall call;
  call.keys = in.keys;
  call.values = in.values;
  call.kv_heads = in.kv_heads;
  call.q = q;
  call.out = out;
  if (rows_of(call, kFew).stages == 0) return false;
  const AttentionKernel few = {mma_parts<kFew>, kFew, true}, many = {mma_parts<kMany>, kMany, true};
  const bool room = shared_bytes(stream) >= MmaPart<false, kMany>::kSharedBytes;
  attention_by(room ? many : few, stream, in, where, q, out);
  return true;
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
