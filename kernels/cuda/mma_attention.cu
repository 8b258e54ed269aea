#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/mma_attention.h"
#include "kernels/cuda/ptx.h"

/// Attention with tensor cores (`cuda_mma`): the same kernel and the same tiles for a generated row
/// and for a prompt.
///
/// A CTA for up to 32 queries and a part of 1,024 positions of their context. Of each tile of 32:
///
///     all: keys and values ──► shared, while the tile before is computed if there is room for two
///     8 warps, 16 queries x 8 positions each: q K^T ──► scores
///     8 threads a query: the maximum so far, the weights ──► bf16 in shared, what O shrinks by
///     8 warps, eight of every 64 columns each: O = O shrunk + weights V, in registers
///
/// Bytes: keys and values of the part once for 32 queries (MLA: a value is a part of its key). Of a
/// bf16 cache they are copied beside the threads; e4m3 goes through registers. Operations, a
/// position: 2 (k_dim + v_dim) for each query; those of one MLA head's 32 queries are 60 a byte. By
/// arithmetic: V3's decode, 128 queries a row, is bound by what shared memory gives ldmatrix (three
/// of its cycles for each of an mma's, in scores), then by the second level cache, from which four
/// CTAs read the same keys. Not measured on a GPU.
namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

constexpr int kMmaQueries = 32;
constexpr std::int32_t kMmaTile = 32;  ///< positions whose maximum is taken together
constexpr int kMmaWarps = 8;
constexpr std::int64_t kMmaColumns = 8;  ///< times eight, of a result, that a warp has
constexpr std::uint32_t kWholeWarp = 0xffffffffu;

/// How things lie in shared memory, in units of sixteen bytes. Rows have an odd number of them, so
/// that eight rows below each other lie in different banks.
struct Rows {
  std::int64_t key = 0, value = 0;  ///< from a row to the next; no values: 0
  int stages = 1;                   ///< tiles that there is room for

  static constexpr std::int64_t kRoom = 2 * kMmaQueries * 73;  ///< V3's queries and keys
  static constexpr std::int64_t kScores = 9, kWeights = 5;

  /// Nothing if they do not fit.
  static Rows of(std::int64_t k_dim, std::int64_t v_dim, bool shared) {
    Rows r;
    r.key = ceil_div(k_dim, 32) * 4 + 1;
    r.value = shared ? 0 : ceil_div(v_dim, 8) | 1;
    const std::int64_t left = kRoom / kMmaQueries - r.key;
    r.stages = static_cast<int>(std::min<std::int64_t>(2, left / (r.key + r.value)));
    return r;
  }
  DEVICE std::int64_t tile() const { return kMmaTile * (key + value); }
};

template <bool kFp8>
struct MmaPart {
  static constexpr int kThreads = kMmaWarps * 32;
  static constexpr std::size_t kScoresAt = Rows::kRoom * 16;
  static constexpr std::size_t kWeightsAt = kScoresAt + kMmaQueries * Rows::kScores * 16;
  static constexpr std::size_t kFactorsAt = kWeightsAt + kMmaQueries * Rows::kWeights * 16;
  static constexpr std::size_t kSharedBytes = kFactorsAt + kMmaQueries * 4;
  static constexpr bool kMeets = true;

  AttentionCall call;
  AttentionWork work;
  Rows rows;
  bool aligned = false;  ///< rows of the cache lie on boundaries of sixteen bytes

  /// What eight threads keep of their query.
  struct Query {
    std::int32_t from = 0, to = 0;  ///< sees nothing: a query that is not there
    float max = 0, sum = 0;
    bool fresh = true;
  };
  struct Room {
    Shared<Quad> tiles;           ///< [queries][key], then each tile's [tile][key], [tile][value]
    Shared<float> scores;         ///< [queries][4 kScores]
    Shared<Quad> scores4;         ///< the same
    Shared<Quad> weights;         ///< [queries][kWeights], bf16
    Shared<std::uint32_t> pairs;  ///< the same
    Shared<float> factors;        ///< [queries]
  };
  /// Of a result, rows l / 4 and + 8 of 16 queries and columns 2 (l % 4) and + 1 of eight.
  using Out = float[2][kMmaColumns][4];

  DEVICE void operator()(Cta& cta) const {
    const AttentionPiece piece = work.pieces[cta.block_x()];
    const AttentionUnit u = work.units[piece.unit];
    const Room room = {cta.shared<Quad>(0, Rows::kRoom),
                       cta.shared<float>(kScoresAt, kMmaQueries * Rows::kScores * 4),
                       cta.shared<Quad>(kScoresAt, kMmaQueries * Rows::kScores),
                       cta.shared<Quad>(kWeightsAt, kMmaQueries * Rows::kWeights),
                       cta.shared<std::uint32_t>(kWeightsAt, kMmaQueries * Rows::kWeights * 4),
                       cta.shared<float>(kFactorsAt, kMmaQueries)};
    load_queries(cta, u, room);
    // What all queries see: in other tiles each has its own.
    std::int32_t all_from = 0, all_to = u.to;
    for (std::int64_t r = u.row_of(call, 0); r <= u.row_of(call, u.count - 1); ++r) {
      if (call.from(r) > all_from) all_from = call.from(r);
      if (call.to(r) < all_to) all_to = call.to(r);
    }
    Query mine;
    if (const int query = cta.thread() / 8; query < u.count) {
      mine.from = call.from(u.row_of(call, query));
      mine.to = call.to(u.row_of(call, query));
    }
    Out out = {};
    const std::int32_t last = piece.first + kPart < u.to ? piece.first + kPart : u.to;
    const std::int32_t begin = piece.first > u.from ? piece.first : u.from / kMmaTile * kMmaTile;
    load(cta, u, begin, 0, room);
    ptx::commit_copies(cta);
    int stage = 0;
    for (std::int32_t first = begin; first < last; first += kMmaTile) {
      const bool more = first + kMmaTile < last;
      if (rows.stages == 2) {
        if (more) load(cta, u, first + kMmaTile, 1 - stage, room);
        ptx::commit_copies(cta);
        ptx::wait_copies<1>(cta);
      } else {
        ptx::wait_copies<0>(cta);
      }
      cta.sync();
      score(cta, u, stage, room);
      cta.sync();
      weigh(cta, first, mine, room);
      cta.sync();
      add_values(cta, u, first, first < all_from || first + kMmaTile > all_to, stage, room, out);
      cta.sync();
      if (rows.stages == 2) {
        stage = 1 - stage;
      } else if (more) {
        load(cta, u, first + kMmaTile, 0, room);
        ptx::commit_copies(cta);
      }
    }
    ptx::wait_copies<0>(cta);
    store(cta, u, mine, out);
  }

  /// Eight numbers from column `at` on as bf16, of `dim` that there are.
  template <class Number>
  DEVICE static Quad eight(std::int64_t at, std::int64_t dim, const Number& number) {
    Quad q;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::int64_t i = at + 2 * j;
      q.words[j] = round_pair(i < dim ? number(i) : 0.0f, i + 1 < dim ? number(i + 1) : 0.0f);
    }
    return q;
  }

  DEVICE void load_queries(Cta& cta, const AttentionUnit& u, const Room& room) const {
    const int quads = static_cast<int>(rows.key) - 1;
    for (int query = cta.warp(); query < kMmaQueries; query += kMmaWarps) {
      const bool any = query < u.count;
      const float* q =
          any ? head_at<const float>(call.q, u.row_of(call, query), u.head_of(call, query))
              : nullptr;
      for (int c = cta.lane(); c < quads; c += 32)
        room.tiles[query * rows.key + c] =
            eight(c * 8, any ? call.q.dim : 0, [&](std::int64_t i) { return q[i]; });
    }
  }

  /// A tile's keys and values; zeros where no query sees.
  DEVICE void load(Cta& cta, const AttentionUnit& u, std::int32_t first, int stage,
                   const Room& room) const {
    const std::int32_t* table = call.where.tables[u.row];
    const std::int64_t keys = kMmaQueries * rows.key + stage * rows.tile();
    const std::int64_t values = keys + kMmaTile * rows.key;
    for (int i = cta.warp(); i < kMmaTile; i += kMmaWarps) {
      const std::int32_t p = first + i;
      const bool any = p >= u.from && p < u.to;
      const std::int64_t slot = any ? slot_of(call.keys, table, p) : 0;
      load_row(cta, any ? kv_slot(call.keys, slot, u.kv_head * call.q.dim) : nullptr, call.q.dim,
               rows.key - 1, keys + i * rows.key, room);
      if (rows.value > 0)
        load_row(cta, any ? kv_slot(call.values, slot, u.kv_head * call.out.dim) : nullptr,
                 call.out.dim, ceil_div(call.out.dim, 8), values + i * rows.value, room);
    }
  }

  /// A warp's row of `dim` numbers, null for zeros, to `quads` times sixteen bytes.
  DEVICE void load_row(Cta& cta, const std::byte* from, std::int64_t dim, std::int64_t quads,
                       std::int64_t to, const Room& room) const {
    for (std::int64_t c = cta.lane(); c < quads; c += 32) {
      const bool any = from != nullptr && c * 8 < dim;
      if (!kFp8 && aligned) {
        ptx::copy_later(cta, room.tiles, to + c, any ? from + c * 16 : nullptr);
      } else if (kFp8 && aligned) {
        if (c % 2 != 0) continue;
        const Quad codes = any ? cta.load_quad(from + c * 8) : Quad{{0, 0, 0, 0}};
        const auto number = [&](std::int64_t i) {
          return e4m3_to_float(static_cast<std::uint8_t>(codes.words[i / 4] >> (i % 4 * 8)));
        };
        room.tiles[to + c] = eight(0, 16, number);
        if (c + 1 < quads) room.tiles[to + c + 1] = eight(8, 16, number);
      } else {
        room.tiles[to + c] = eight(c * 8, any ? dim : 0, [&](std::int64_t i) {
          return kv_number(from, call.keys.dtype, i);
        });
      }
    }
  }

  /// A warp's 16 queries with its 8 positions.
  DEVICE void score(Cta& cta, const AttentionUnit& u, int stage, const Room& room) const {
    const int lane = cta.lane(), query = cta.warp() / 4 * 16, position = cta.warp() % 4 * 8;
    if (query >= u.count) return;
    const std::int64_t keys = kMmaQueries * rows.key + stage * rows.tile();
    const std::int64_t q = (query + lane % 16) * rows.key + lane / 16;
    const std::int64_t k = keys + (position + lane % 8) * rows.key + lane / 8;
    float sums[4] = {0, 0, 0, 0};
#pragma unroll 2
    for (std::int64_t c = 0; c + 1 < rows.key; c += 4) {
      std::uint32_t a[4], more[4], b[4];
      ptx::ldmatrix(cta, room.tiles, q + c, a);
      ptx::ldmatrix(cta, room.tiles, q + c + 2, more);
      ptx::ldmatrix(cta, room.tiles, k + c, b);
      ptx::mma(cta, a, b[0], b[1], sums);
      ptx::mma(cta, more, b[2], b[3], sums);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e)
      room.scores[(query + lane / 4 + e / 2 * 8) * Rows::kScores * 4 + position + lane % 4 * 2 +
                  e % 2] = call.scale * sums[e];
  }

  /// Eight threads' query: scores become weights, and what is before them shrinks.
  DEVICE void weigh(Cta& cta, std::int32_t first, Query& mine, const Room& room) const {
    const int query = cta.thread() / 8, of_eight = cta.thread() % 8;
    const std::int32_t at = first + of_eight * 4;
    float p[4] = {0, 0, 0, 0};
    float max = -__builtin_inff();
    if (mine.to > 0) {
      const Quad four = room.scores4[query * Rows::kScores + of_eight];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[i] = std::bit_cast<float>(four.words[i]);
        if (at + i >= mine.from && at + i < mine.to) max = max > p[i] ? max : p[i];
      }
    }
#pragma unroll
    for (int apart = 1; apart < 8; apart *= 2) {
      const float other = cta.shuffle(kWholeWarp, max, cta.lane() ^ apart);
      max = max > other ? max : other;
    }
    if (!mine.fresh) max = mine.max > max ? mine.max : max;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool sees = at + i >= mine.from && at + i < mine.to;
      p[i] = sees ? bf(exp_f32(p[i] - max)) : 0.0f;
    }
    float sum = ((p[0] + p[1]) + p[2]) + p[3];
#pragma unroll
    for (int apart = 1; apart < 8; apart *= 2)
      sum = sum + cta.shuffle(kWholeWarp, sum, cta.lane() ^ apart);
    float factor = 1;
    if (mine.from < first + kMmaTile && mine.to > first) {
      factor = mine.fresh ? 1.0f : exp_f32(mine.max - max);
      mine.sum = mine.fresh ? sum : fma_f32(mine.sum, factor, sum);
      mine.max = max;
      mine.fresh = false;
    }
    room.pairs[query * Rows::kWeights * 4 + of_eight * 2] = round_pair(p[0], p[1]);
    room.pairs[query * Rows::kWeights * 4 + of_eight * 2 + 1] = round_pair(p[2], p[3]);
    if (of_eight == 0) room.factors[query] = factor;
  }

  /// `masked`: some query does not see all of the tile.
  DEVICE void add_values(Cta& cta, const AttentionUnit& u, std::int32_t first, bool masked,
                         int stage, const Room& room, Out& out) const {
    const int lane = cta.lane();
    const std::int64_t keys = kMmaQueries * rows.key + stage * rows.tile();
    const std::int64_t values = rows.value > 0 ? keys + kMmaTile * rows.key : keys;
    const std::int64_t row = rows.value > 0 ? rows.value : rows.key;
    std::uint32_t weights[2][2][4];
    float factors[2][2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      if (m * 16 >= u.count) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ptx::ldmatrix(cta, room.weights,
                      (m * 16 + lane % 16) * Rows::kWeights + half * 2 + lane / 16,
                      weights[m][half]);
        factors[m][half] = room.factors[m * 16 + half * 8 + lane / 4];
      }
    }
#pragma unroll
    for (int c = 0; c < kMmaColumns; ++c) {
      const std::int64_t column = c * kMmaWarps + cta.warp();
      if (column * 8 >= call.out.dim) continue;
      std::uint32_t v[4];
      ptx::ldmatrix_trans(cta, room.tiles, values + lane * row + column, v);
      const bool apart = masked && ptx::any(cta, !finite(v));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        if (m * 16 >= u.count) continue;
#pragma unroll
        for (int e = 0; e < 4; ++e) out[m][c][e] = out[m][c][e] * factors[m][e / 2];
        if (apart) {
          add_apart(cta, u, first, m, weights[m], v, out[m][c]);
          continue;
        }
        ptx::mma(cta, weights[m][0], v[0], v[1], out[m][c]);
        ptx::mma(cta, weights[m][1], v[2], v[3], out[m][c]);
      }
    }
  }

  DEVICE static bool finite(const std::uint32_t (&pairs)[4]) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      all = all && (pairs[i] & 0x7f80u) != 0x7f80u && (pairs[i] & 0x7f800000u) != 0x7f800000u;
    return all;
  }

  /// Row by row of the queries, each with zeros where it does not see, whatever lies there.
  DEVICE void add_apart(Cta& cta, const AttentionUnit& u, std::int32_t first, int m,
                        const std::uint32_t (&weights)[2][4], const std::uint32_t (&v)[4],
                        float (&out)[4]) const {
    const float before[4] = {out[0], out[1], out[2], out[3]};
    const std::int64_t last = u.row_of(call, u.count - 1);
    for (std::int64_t r = u.row_of(call, 0); r <= last; ++r) {
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
        if (u.row_of(call, m * 16 + cta.lane() / 4 + e / 2 * 8) == r) out[e] = sums[e];
    }
  }

  DEVICE void store(Cta& cta, const AttentionUnit& u, const Query& mine, const Out& out) const {
    const std::int64_t at = cta.block_x() * kMmaQueries;
    if (cta.thread() % 8 == 0) {
      work.partials.max[at + cta.thread() / 8] = mine.max;
      work.partials.sum[at + cta.thread() / 8] = mine.sum;
    }
#pragma unroll
    for (int c = 0; c < kMmaColumns; ++c)
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int query = m * 16 + cta.lane() / 4 + e / 2 * 8;
          const std::int64_t d = (c * kMmaWarps + cta.warp()) * 8 + cta.lane() % 4 * 2 + e % 2;
          if (query < u.count && d < call.out.dim)
            work.partials.out[(at + query) * call.out.dim + d] = out[m][c][e];
        }
  }
};

bool values_are_keys(const AttentionCall& call) {
  return call.values.base == call.keys.base && call.values.row == call.keys.row &&
         call.kv_heads == 1 && call.out.dim <= call.q.dim;
}

Rows rows_of(const AttentionCall& call) {
  return Rows::of(call.q.dim, call.out.dim, values_are_keys(call));
}

bool on_sixteen(const KvPool& pool, std::int64_t of_head) {
  const auto size = static_cast<std::int64_t>(dtype_size(pool.dtype));
  return reinterpret_cast<std::uintptr_t>(pool.base) % 16 == 0 && pool.row * size % 16 == 0 &&
         of_head * size % 16 == 0;
}

void mma_parts(Stream& stream, const AttentionCall& call, const AttentionWork& work) {
  const Rows rows = rows_of(call);
  const bool aligned = on_sixteen(call.keys, call.q.dim) && on_sixteen(call.values, call.out.dim);
  if (call.keys.dtype == DType::kF8E4M3)
    launch(stream, {work.piece_count}, MmaPart<true>{call, work, rows, aligned});
  else
    launch(stream, {work.piece_count}, MmaPart<false>{call, work, rows, aligned});
}

}  // namespace

bool mma_attention(Stream& stream, const AttentionInputs& in, const PagedRows& where,
                   const Tensor& q, const Tensor& out) {
  if (out.dim > kMmaColumns * kMmaWarps * 8) return false;
  AttentionCall call;
  call.keys = in.keys;
  call.values = in.values;
  call.kv_heads = in.kv_heads;
  call.q = q;
  call.out = out;
  if (rows_of(call).stages == 0) return false;
  attention_by(mma_parts, kMmaQueries, stream, in, where, q, out);
  return true;
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
