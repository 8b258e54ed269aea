#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/mma_attention.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

constexpr int kQueries = 8;  ///< that share what is read of the cache; a warp each
constexpr std::int64_t kKMax = 2048, kVMax = 512;
constexpr std::uint32_t kMaskOfAll = 0xffffffffu;

/// A CTA for eight queries and some parts of 1,024 positions of their context. Of each tile:
///
///     a thread a position: its key, sixteen bytes at a time, with all queries ──► scores
///     a warp a query: the maximum, the weights, their sum, what is folded with what
///     a thread two numbers of the result: the values of all positions, with all queries
///
/// Bytes: keys and values of the parts once for eight queries. Operations, a position: an fma for
/// each query and number of a key, and for each query and number of a value. By arithmetic eight
/// queries of MLA are 7.6 fma a byte of bf16: bound by the CUDA cores. Not measured on a GPU.
/// `kFp8`: e4m3, else bf16.
template <bool kFp8>
struct FastPart {
  static constexpr int kThreads = kTile;
  static constexpr int kOfQuad = kFp8 ? 16 : 8;  ///< numbers in sixteen bytes
  static constexpr std::size_t kQueryBytes = kQueries * kKMax * 2;
  static constexpr std::size_t kSharedBytes =
      kQueryBytes + kTile * sizeof(std::int64_t) + (kQueries * kTile + 2 * kQueries) * 4;
  static constexpr bool kMeets = true;
  static_assert(kThreads == 32 * kQueries);

  AttentionCall call;
  AttentionWork work;

  /// What a warp keeps of its query.
  struct Query {
    std::int32_t from = 0, to = 0;
    SoftmaxFold part, all;
  };
  using Out = float[kQueries][2];
  /// Of the positions of a tile, those between `begin` and `end` are read.
  struct Tile {
    std::int32_t first, begin, end;
    bool masked;  ///< some query does not see all of it
  };
  struct Room {
    Shared<Quad> q;              ///< [queries][padded k], as pairs of bf16
    Shared<Quad> weights4;       ///< `weights`, four at a time
    Shared<float> weights;       ///< [queries][tile]: scores, then weights
    Shared<float> factors;       ///< [queries][2], of a fold or of the end
    Shared<std::int64_t> slots;  ///< [tile]: of a position; -1: no query sees it
  };

  DEVICE void operator()(Cta& cta) const {
    const AttentionPiece piece = work.pieces[cta.block_x()];
    const AttentionUnit u = work.units[piece.unit];
    constexpr std::size_t kSlots = kQueryBytes + kQueries * kTile * sizeof(float);
    const Room room = {cta.shared<Quad>(0, kQueryBytes / sizeof(Quad)),
                       cta.shared<Quad>(kQueryBytes, kQueries * kTile / 4),
                       cta.shared<float>(kQueryBytes, kQueries * kTile),
                       cta.shared<float>(kSlots + kTile * sizeof(std::int64_t), 2 * kQueries),
                       cta.shared<std::int64_t>(kSlots, kTile)};
    const std::int32_t* table = call.where.tables[u.row];
    load_queries(cta, u, room);
    Query mine;
    if (cta.warp() < u.count) {
      mine.from = call.from(u.row_of(call, cta.warp()));
      mine.to = call.to(u.row_of(call, cta.warp()));
    }
    Out all = {};
#pragma unroll 1
    for (std::int32_t part = 0; part < piece.parts; ++part) {
      Out out = {};
      mine.part = {};
      add_part(cta, u, table, piece.first + part * kPart, mine, room, out);
      cta.sync();  // the factors of the last tile are used
      tell(cta, mine.part.sum != 0 ? mine.all.add(mine.part.max, mine.part.sum) : kNothing, room);
      cta.sync();
      fold(room, out, all);
    }
    if (piece.whole)
      finish(cta, u, mine, room, all);
    else
      store(cta, u, piece, mine, all);
  }

  /// Nothing is folded in.
  static constexpr SoftmaxFold::Factors kNothing = {0, 1};

  /// A warp's factors, for all.
  DEVICE static void tell(Cta& cta, SoftmaxFold::Factors f, const Room& room) {
    if (cta.lane() != 0) return;
    room.factors[2 * cta.warp()] = f.next;
    room.factors[2 * cta.warp() + 1] = f.before;
  }
  DEVICE static void fold(const Room& room, const Out& next, Out& into) {
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      const float x = room.factors[2 * i], before = room.factors[2 * i + 1];
      into[i][0] = fma_f32(next[i][0], x, into[i][0] * before);
      into[i][1] = fma_f32(next[i][1], x, into[i][1] * before);
    }
  }

  DEVICE void add_part(Cta& cta, const AttentionUnit& u, const std::int32_t* table,
                       std::int32_t begin, Query& mine, const Room& room, Out& out) const {
    const std::int32_t last = begin + kPart < u.to ? begin + kPart : u.to;
    for (std::int32_t first = begin; first < last; first += kTile) {
      if (first + kTile <= u.from) continue;
      const Tile tile = tile_of(u, first);
      cta.sync();  // the weights of the last tile are used, or the queries lie there
      score(cta, u, table, tile, room);
      cta.sync();
      weigh(cta, tile, mine, room);
      cta.sync();
      if (tile.masked)
        add_values<true>(cta, u, tile, room, out);
      else
        add_values<false>(cta, u, tile, room, out);
    }
  }

  DEVICE Tile tile_of(const AttentionUnit& u, std::int32_t first) const {
    return {first, first > u.from ? first : u.from, first + kTile < u.to ? first + kTile : u.to,
            !u.sees_all(first, first + kTile)};
  }

  DEVICE std::int64_t padded_k() const { return (call.q.dim + 31) / 32 * 32; }

  DEVICE void load_queries(Cta& cta, const AttentionUnit& u, const Room& room) const {
    const int quads = static_cast<int>(padded_k() / 8);
    for (int i = cta.thread(); i < kQueries * quads; i += kThreads) {
      const int query = i / quads, first = i % quads * 8;
      Quad pairs = {{0, 0, 0, 0}};
      if (query < u.count) {
        const float* q =
            head_at<const float>(call.q, u.row_of(call, query), u.head_of(call, query)) + first;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const bool any = first + 2 * j < call.q.dim, more = first + 2 * j + 1 < call.q.dim;
          const std::uint32_t low = any ? to_bf16(q[2 * j]).bits : 0u;
          const std::uint32_t high = more ? to_bf16(q[2 * j + 1]).bits : 0u;
          pairs.words[j] = low | high << 16;
        }
      }
      room.q[i] = pairs;
    }
  }

  /// The i-th number of sixteen bytes of the cache.
  DEVICE static float number(const Quad& quad, int i) {
    if constexpr (kFp8)
      return e4m3_to_float(static_cast<std::uint8_t>(quad.words[i / 4] >> (i % 4 * 8)));
    return i % 2 == 0 ? low_half(quad.words[i / 2]) : high_half(quad.words[i / 2]);
  }

  /// A thread's position with all queries.
  DEVICE void score(Cta& cta, const AttentionUnit& u, const std::int32_t* table, const Tile& tile,
                    const Room& room) const {
    const std::int32_t p = tile.first + cta.thread();
    if (p < tile.begin || p >= tile.end) {
      room.slots[cta.thread()] = -1;
      for (int i = 0; i < kQueries; ++i) room.weights[i * kTile + cta.thread()] = 0;
      return;
    }
    const std::int64_t slot = slot_of(call.keys, table, p);
    room.slots[cta.thread()] = slot;
    const std::byte* key = kv_slot(call.keys, slot, u.kv_head * call.q.dim);
    const int quads = static_cast<int>(padded_k() / 8), blocks = quads / 4;
    float sums[kQueries] = {};
    for (int block = 0; block < blocks; ++block) {
      Quad keys[32 / kOfQuad];
#pragma unroll
      for (int j = 0; j < 32 / kOfQuad; ++j)
        keys[j] = block * 32 + j * kOfQuad < call.q.dim
                      ? cta.load_quad(key + (block * 32 / kOfQuad + j) * 16)
                      : Quad{{0, 0, 0, 0}};
      float even[kQueries] = {}, odd[kQueries] = {};
#pragma unroll
      for (int j = 0; j < 4; ++j) {  // of eight numbers
        float k[8];
#pragma unroll
        for (int n = 0; n < 8; ++n) k[n] = number(keys[j * 8 / kOfQuad], j * 8 % kOfQuad + n);
#pragma unroll
        for (int i = 0; i < kQueries; ++i) {
          const Quad q = room.q[i * quads + block * 4 + j];
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            even[i] = fma_f32(low_half(q.words[n]), k[2 * n], even[i]);
            odd[i] = fma_f32(high_half(q.words[n]), k[2 * n + 1], odd[i]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kQueries; ++i) sums[i] = sums[i] + (even[i] + odd[i]);
    }
#pragma unroll
    for (int i = 0; i < kQueries; ++i)
      room.weights[i * kTile + cta.thread()] = call.scale * sums[i];
  }

  /// A warp's query: scores become weights, and the tile is folded into what is before.
  DEVICE void weigh(Cta& cta, const Tile& tile, Query& mine, const Room& room) const {
    const int query = cta.warp(), lane = cta.lane();
    const std::int32_t begin = mine.from > tile.first ? mine.from - tile.first : 0;
    const std::int32_t end = mine.to < tile.first + kTile ? mine.to - tile.first : kTile;
    float scores[kTile / 32];
    float max = -__builtin_inff();
#pragma unroll
    for (int n = 0; n < kTile / 32; ++n) {
      const int p = n * 32 + lane;
      scores[n] = room.weights[query * kTile + p];
      if (p >= begin && p < end) max = max > scores[n] ? max : scores[n];
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
      const float other = cta.shuffle(kMaskOfAll, max, lane ^ apart);
      max = max > other ? max : other;
    }
#pragma unroll
    for (int n = 0; n < kTile / 32; ++n) {
      const int p = n * 32 + lane;
      const bool sees = p >= begin && p < end;
      room.weights[query * kTile + p] = sees ? bf(exp_f32(scores[n] - max)) : 0.0f;
    }
    cta.sync();
    const float sum = sum_weights(cta, room);
    tell(cta, begin < end ? mine.part.add(max, sum) : kNothing, room);
  }

  /// The product of a warp's weights with ones, a lane a block of them.
  DEVICE float sum_weights(Cta& cta, const Room& room) const {
    float even = 0, odd = 0;
    if (cta.lane() < kTile / 32)
      for (int j = 0; j < 32; j += 2) {
        const std::int64_t at = cta.warp() * kTile + cta.lane() * 32 + j;
        even = fma_f32(room.weights[at], 1.0f, even);
        odd = fma_f32(room.weights[at + 1], 1.0f, odd);
      }
    const float of_block = even + odd;
    float sum = 0;
#pragma unroll
    for (int block = 0; block < kTile / 32; ++block)
      sum = sum + cta.shuffle(kMaskOfAll, of_block, block);
    return sum;
  }

  /// Two numbers of all queries' results: the tile's, folded into `out`. kMasked: what a query does
  /// not see is zero for it, even where it is not finite.
  template <bool kMasked>
  DEVICE void add_values(Cta& cta, const AttentionUnit& u, const Tile& tile, const Room& room,
                         Out& out) const {
    const std::int64_t d = 2 * cta.thread();
    if (d >= call.out.dim) return;
    std::int32_t from[kQueries], to[kQueries];
    if constexpr (kMasked) {
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        const std::int64_t row = u.row_of(call, i < u.count ? i : 0);
        from[i] = call.from(row);
        to[i] = call.to(row);
      }
    }
    Out sums = {};
    for (int block = 0; block < kTile; block += 32) {
      Out even = {}, odd = {};
#pragma unroll 2
      for (int p = block; p < block + 32; p += 4) {
        float v[4][2];
#pragma unroll
        for (int n = 0; n < 4; ++n) load_values(u, room.slots[p + n], d, v[n]);
#pragma unroll
        for (int i = 0; i < kQueries; ++i) {
          const Quad w = room.weights4[(i * kTile + p) / 4];
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const float weight = std::bit_cast<float>(w.words[n]);
            bool sees = true;
            if constexpr (kMasked)
              sees = tile.first + p + n >= from[i] && tile.first + p + n < to[i];
            float(&sum)[2] = n % 2 == 0 ? even[i] : odd[i];
            sum[0] = fma_f32(weight, sees ? v[n][0] : 0.0f, sum[0]);
            sum[1] = fma_f32(weight, sees ? v[n][1] : 0.0f, sum[1]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        sums[i][0] = sums[i][0] + (even[i][0] + odd[i][0]);
        sums[i][1] = sums[i][1] + (even[i][1] + odd[i][1]);
      }
    }
    fold(room, sums, out);
  }

  /// Zeros where no query sees.
  DEVICE void load_values(const AttentionUnit& u, std::int64_t slot, std::int64_t d,
                          float (&v)[2]) const {
    v[0] = v[1] = 0;
    if (slot < 0) return;
    const std::byte* row = kv_slot(call.values, slot, u.kv_head * call.out.dim);
    if constexpr (kFp8) {
      const std::uint16_t two = *reinterpret_cast<const std::uint16_t*>(row + d);
      v[0] = e4m3_to_float(static_cast<std::uint8_t>(two));
      v[1] = e4m3_to_float(static_cast<std::uint8_t>(two >> 8));
    } else {
      const std::uint32_t two = *reinterpret_cast<const std::uint32_t*>(row + 2 * d);
      v[0] = low_half(two);
      v[1] = high_half(two);
    }
  }

  DEVICE void store(Cta& cta, const AttentionUnit& u, const AttentionPiece& piece,
                    const Query& mine, const Out& out) const {
    if (cta.lane() == 0 && cta.warp() < u.count) {
      work.partials.max[piece.partial + cta.warp()] = mine.all.max;
      work.partials.sum[piece.partial + cta.warp()] = mine.all.sum;
    }
    const std::int64_t d = 2 * cta.thread();
    if (d >= call.out.dim) return;
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      if (i >= u.count) continue;
      float* to = work.partials.out + (piece.partial + i) * call.out.dim + d;
      to[0] = out[i][0];
      to[1] = out[i][1];
    }
  }

  DEVICE void finish(Cta& cta, const AttentionUnit& u, const Query& mine, const Room& room,
                     const Out& out) const {
    cta.sync();  // the factors of the last part are used
    if (cta.warp() < u.count) {
      const AttentionEnd end = AttentionEnd::of(call, u.head_of(call, cta.warp()), mine.all);
      tell(cta, {end.sink, end.inverse}, room);
    }
    cta.sync();
    const std::int64_t d = 2 * cta.thread();
    if (d >= call.out.dim) return;
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      if (i >= u.count) continue;
      const float sink = room.factors[2 * i], inverse = room.factors[2 * i + 1];
      float* to = u.out_of(call, i) + d;
      to[0] = (out[i][0] * sink) * inverse;
      to[1] = (out[i][1] * sink) * inverse;
    }
  }
};

void fast_parts(Stream& stream, const AttentionCall& call, const AttentionWork& work) {
  if (call.keys.dtype == DType::kF8E4M3)
    launch(stream, {work.piece_count}, FastPart<true>{call, work});
  else
    launch(stream, {work.piece_count}, FastPart<false>{call, work});
}

bool on_boundary(const KvPool& pool, std::int64_t of_head, std::int64_t bytes) {
  const auto size = static_cast<std::int64_t>(dtype_size(pool.dtype));
  return reinterpret_cast<std::uintptr_t>(pool.base) % static_cast<std::uintptr_t>(bytes) == 0 &&
         pool.row * size % bytes == 0 && of_head * size % bytes == 0;
}

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::attention(Stream& stream, const AttentionInputs& in, const PagedRows& where,
                                  const Tensor& q, const Tensor& out) {
  if (by_tensor_cores(stream.numerics())) {
    if (!mma_attention(stream, in, where, q, out)) plain_attention(stream, in, where, q, out);
    return;
  }
  // Rows of the cache that do not lie on boundaries are read a number at a time, to the same bits.
  const std::int64_t two = in.values.dtype == DType::kF8E4M3 ? 2 : 4;
  const bool fits = q.dim <= kKMax && out.dim <= kVMax && out.dim % 2 == 0 &&
                    on_boundary(in.keys, q.dim, 16) && on_boundary(in.values, out.dim, two);
  if (!fits) return plain_attention(stream, in, where, q, out);
  attention_by({fast_parts, kQueries, true}, stream, in, where, q, out);
}

}  // namespace troupe::kernels
