#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/mma_attention.h"
#include "kernels/cuda/mma_rows.h"
#include "kernels/cuda/tile_softmax.h"
#include "kernels/cuda/wgmma.h"

/// MLA's attention on sm_90 (`cuda_mma`): the bits of mma_attention.cu, by tensor cores that read
/// queries, keys and values from shared memory themselves.
///
/// A CTA for up to 64 queries of one row, and some parts of 1,024 positions of its context, tile
/// after tile of 32. Its warps are three groups of four: two have each half of the columns of O, in
/// registers; the third makes weights, and holds most numbers of the queries in registers too.
/// Between two barriers, at tile i:
///
///     the third:  scores of tile i + 2 ──► registers;  scores of tile i + 1 ──► weights, shared
///     the others: O = O shrunk + weights V of tile i;  keys of tile i + 4 ──► shared
///
/// where an arrow's left side is tensor cores' and copies' work, beside the threads. Shared memory
/// has room for five tiles, whose first 512 columns are the values. A part's end is the third
/// group's too: what O and what is before it are multiplied with; the others fold.
///
/// Bytes: keys of the parts once for 64 queries, and 8 a number of O and part, within the second
/// level cache, which is told to keep those. Operations, a position: 2 (576 + 512) for each query.
///
/// By arithmetic, in cycles of a tile: tensor cores are busy 1,088, shared memory about as long
/// (scores read 68 KB for it, O 40, copies write 36). Measured on an H100: a prompt of 8,192
/// positions and 128 heads 358 TFLOP/s, MLA's decode of 128 sequences of 4,096 positions 1,320 GB/s
/// of keys, which are 0.44 of a copy. A tile takes some 2,100 cycles there: the third group's 800
/// instructions wait for each other and for the registers' ports, and bound it. Parts' ends are a
/// seventh of the time, as fast as the second level cache is, and a CTA's first loads a twelfth.
namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

struct WgmmaPart {
  static constexpr int kGroup = 128, kThreads = 3 * kGroup, kLoaders = 2 * kGroup;
  static constexpr int kQueries = 64, kKey = 576, kValue = 512;  ///< MLA's, and V3's widths
  // Blocks of 64 numbers of a row of keys; of the queries', those that registers hold come first.
  static constexpr int kBlocks = kKey / 64, kHeld = 5;
  static constexpr int kTiles = 5;  ///< that there is room for
  // Quads of shared memory: a row of a block has eight.
  static constexpr int kQueryBlock = kQueries * 8, kTileBlock = kMmaTile * 8;
  static constexpr int kTilesAt = (kBlocks - kHeld) * kQueryBlock, kTile = kBlocks * kTileBlock;
  static constexpr int kWeightsAt = kTilesAt + kTiles * kTile;
  static constexpr int kQuads = kWeightsAt + kQueryBlock;
  static constexpr std::size_t kFactorsAt = std::size_t{kQuads} * 16;
  static constexpr std::size_t kEndsAt = kFactorsAt + 2 * kQueries * 4;
  static constexpr std::size_t kSharedBytes = kEndsAt + 2 * kQueries * 16;
  static constexpr bool kMeets = true;
  static constexpr std::size_t kAlignment = 1024;  ///< of shared memory, as wgmma.h has matrices
  static constexpr int kOfWeights = 184, kOfOut = 160;  ///< registers of a thread
  static_assert(kSharedBytes <= kMostSharedBytes);

  AttentionCall call;
  AttentionWork work;

  /// What a query's O is multiplied with at a part's end, and what is before it: below 0 where
  /// nothing is.
  struct alignas(16) Ends {
    float next, before, sink, inverse;
  };
  struct Room {
    Shared<Quad> quads;           ///< queries, tiles, weights: as wgmma.h has matrices
    Shared<std::uint32_t> pairs;  ///< the same
    Shared<float> factors;        ///< [2][queries]: what O shrinks by before a tile, in turn
    Shared<Ends> ends;            ///< [2][queries]: of a tile that ends a part
  };
  /// Of a CTA.
  struct Context {
    const std::int32_t* table;
    std::int32_t from, to;  ///< positions that all of its queries see
    std::int32_t begin, tiles;

    DEVICE std::int32_t first(std::int32_t tile) const { return begin + tile * kMmaTile; }
    DEVICE bool begins_part(std::int32_t tile) const {
      return tile == 0 || first(tile) % kPart == 0;
    }
    DEVICE bool ends_part(std::int32_t tile) const {
      return tile + 1 == tiles || first(tile + 1) % kPart == 0;
    }
  };
  // Rows l / 4 and + 8 of a warp's sixteen; of each eight columns, 2 (l % 4) and + 1.
  using Scores = float[kMmaTile / 2];
  using Out = float[kValue / 4];
  /// A warp's sixteen queries as an mma takes them, sixteen numbers after the other.
  using Held = std::uint32_t[kHeld * 4][4];
  struct alignas(8) Two {
    float of[2];
  };
  /// Of a thread's two queries.
  struct Softmax {
    SoftmaxFold part[2], before[2];
  };

  DEVICE void operator()(Cta& cta) const {
    const AttentionPiece& piece = work.pieces[cta.block_x()];
    const Context c = context_of(piece);
    const Room room = {cta.shared<Quad>(0, kQuads), cta.shared<std::uint32_t>(0, kQuads * 4),
                       cta.shared<float>(kFactorsAt, 2 * kQueries),
                       cta.shared<Ends>(kEndsAt, 2 * kQueries)};
    // A warp's, as nvcc can see.
    const int group = cta.shuffle(kAllLanes, cta.thread() / kGroup, 0);
    if (group == 2) {
      ptx::take_registers<kOfWeights>(cta);
      make_weights(cta, piece, c, room);
    } else {
      ptx::leave_registers<kOfOut>(cta);
      make_out(cta, piece, c, group, room);
    }
  }

  DEVICE Context context_of(const AttentionPiece& piece) const {
    const AttentionUnit& u = work.units[piece.unit];
    Context c;
    c.table = call.where.tables[u.row];
    c.from = u.from;
    c.to = u.to;
    const std::int32_t end = piece.first + piece.parts * kPart;
    c.begin = piece.first > u.from ? piece.first : u.from / kMmaTile * kMmaTile;
    c.tiles = ((end < u.to ? end : u.to) - c.begin + kMmaTile - 1) / kMmaTile;
    return c;
  }
  DEVICE static int tile_at(std::int32_t tile) { return kTilesAt + tile % kTiles * kTile; }
  /// The first of a thread's two queries, the other of which is eight behind.
  DEVICE static int query_of(Cta& cta) { return cta.warp() % 4 * 16 + cta.lane() / 4; }
  /// Queries of a unit are heads beside each other of one row: from the first to the others.
  DEVICE const float* queries_at(const AttentionUnit& u) const {
    return head_at<const float>(call.q, u.row_of(call, 0), u.head_of(call, 0));
  }
  /// Where all threads of the CTA meet.
  DEVICE static void meet(Cta& cta) { ptx::meet<kThreads>(cta); }

  // The third group.

  DEVICE void make_weights(Cta& cta, const AttentionPiece& piece, const Context& c,
                           const Room& room) const {
    Held held;
    const AttentionUnit u = work.units[piece.unit];
    hold_queries(cta, u, held);
    Softmax softmax;
    Scores scores;
    meet(cta);
    begin_scores(cta, scores);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) score(cta, 0, block, held, room, scores);
    ptx::wgmma_commit(cta);
    ptx::wgmma_wait<0>(cta, scores);
#pragma unroll 1
    for (std::int32_t tile = 0; tile < c.tiles; ++tile) {
      if (tile > 0) meet(cta);
      if (c.first(tile) < c.from || c.first(tile + 1) > c.to)
        weigh<true>(cta, c, tile, held, scores, softmax, room);
      else
        weigh<false>(cta, c, tile, held, scores, softmax, room);
      if (c.ends_part(tile)) end_part(cta, piece, tile, tile + 1 == c.tiles, softmax, room);
    }
    meet(cta);
  }

  /// The first blocks of a warp's sixteen queries, as an mma takes them.
  DEVICE void hold_queries(Cta& cta, const AttentionUnit& u, Held& held) const {
    const float* const first = queries_at(u) + cta.lane() % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = query_of(cta) + half * 8;
      const Two* const q = reinterpret_cast<const Two*>(first + query * call.q.head_stride);
#pragma unroll
      for (int k = 0; k < kHeld * 8; ++k) {
        const Two two = query < u.count ? q[k * 4] : Two{{0, 0}};
        held[k / 2][k % 2 * 2 + half] = round_pair(two.of[0], two.of[1]);
      }
    }
  }

  DEVICE static void begin_scores(Cta& cta, Scores& scores) {
#pragma unroll
    for (int i = 0; i < kMmaTile / 2; ++i) scores[i] = 0;
    ptx::wgmma_fence(cta);
  }
  /// Adds the products of a block to a tile's scores.
  DEVICE static void score(Cta& cta, std::int32_t tile, int block, const Held& held,
                           const Room& room, Scores& scores) {
    const ptx::SharedMatrix q = ptx::shared_matrix(cta, room.quads, 0, 16);
    const ptx::SharedMatrix keys = ptx::shared_matrix(cta, room.quads, tile_at(tile), 16);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const ptx::SharedMatrix key = ptx::moved_by(keys, (block * kTileBlock + k * 2) * 16);
      if (block < kHeld)
        ptx::wgmma_by_rows(cta, held[block * 4 + k], key, scores);
      else
        ptx::wgmma_by_rows(cta, ptx::moved_by(q, ((block - kHeld) * kQueryBlock + k * 2) * 16), key,
                           scores);
    }
  }

  /// A tile's scores become weights, while tensor cores make the next one's, block after block: a
  /// warp that has given them much has to wait. The last tile's are made once more. kMasked: some
  /// positions are not seen.
  template <bool kMasked>
  DEVICE void weigh(Cta& cta, const Context& c, std::int32_t tile, const Held& held, Scores& scores,
                    Softmax& softmax, const Room& room) const {
    const std::int32_t next = tile + 1 < c.tiles ? tile + 1 : tile;
    const bool fresh = c.begins_part(tile);
    const auto sees = [&](int i) {
      const std::int32_t at = c.first(tile) + i / 4 * 8 + cta.lane() % 4 * 2 + i % 2;
      return !kMasked || (at >= c.from && at < c.to);
    };
    Scores numbers;
    float max[2], factors[2];
#pragma unroll
    for (int i = 0; i < kMmaTile / 2; ++i)
      numbers[i] = sees(i) ? call.scale * scores[i] : -__builtin_inff();
    begin_scores(cta, scores);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      score(cta, next, block, held, room, scores);
      if (block == 0) {
        find_maxima(cta, numbers, max);
        shrink(fresh, max, factors, softmax);
        continue;
      }
#pragma unroll
      for (int i = (block - 1) * 2; i < block * 2; ++i) {
        const float weight = exp_below(numbers[i] - max[i / 2 % 2]);
        numbers[i] = sees(i) ? weight : 0.0f;
      }
    }
    ptx::wgmma_commit(cta);
    put_weights(cta, tile, numbers, factors, softmax, room);
    ptx::fence_copies(cta);
    ptx::wgmma_wait<0>(cta, scores);  // here, where nvcc has not two ways for them
  }

  /// Of a thread's two queries, which a quad of lanes has together.
  DEVICE static void find_maxima(Cta& cta, const Scores& numbers, float (&max)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* const n = numbers + half * 2;
      max[half] = larger(larger(larger(n[0], n[1]), larger(n[4], n[5])),
                         larger(larger(n[8], n[9]), larger(n[12], n[13])));
    }
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
      float other[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        other[half] = cta.shuffle(kAllLanes, max[half], cta.lane() ^ apart);
#pragma unroll
      for (int half = 0; half < 2; ++half) max[half] = larger(max[half], other[half]);
    }
  }
  /// What is before a tile shrinks by `factors`.
  DEVICE static void shrink(bool fresh, float (&max)[2], float (&factors)[2], Softmax& softmax) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      SoftmaxFold& part = softmax.part[half];
      // Without a branch, where tensor cores would wait: exp_below(0) is 1.
      const float before = fresh ? max[half] : part.max;
      max[half] = larger(before, max[half]);
      factors[half] = exp_below(before - max[half]);
      part.sum = fresh ? 0.0f : part.sum;
      part.max = max[half];
    }
  }
  DEVICE static void put_weights(Cta& cta, std::int32_t tile, const Scores& numbers,
                                 const float (&factors)[2], Softmax& softmax, const Room& room) {
    const int of_quad = cta.lane() % 4, query = query_of(cta);
    const int row = (kWeightsAt + query * 8) * 4 + of_quad, turned = (tile % 2 * 4) ^ query % 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t weights[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[i] = round_pair(numbers[i * 4 + half * 2], numbers[i * 4 + half * 2 + 1]);
        room.pairs[row + (turned ^ i) * 4 + half * 8 * 32] = weights[i];
      }
      if (of_quad == 0) room.factors[tile % 2 * kQueries + query + half * 8] = factors[half];
      SoftmaxFold& part = softmax.part[half];
      const float sum = sum_of_weights(cta, weights);
      part.sum = fma_f32(part.sum, factors[half], sum);
    }
  }

  /// Says what a part is folded with, and what it is divided by if it is the last.
  DEVICE void end_part(Cta& cta, const AttentionPiece& piece, std::int32_t tile, bool last,
                       Softmax& softmax, const Room& room) const {
    const AttentionUnit& u = work.units[piece.unit];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = query_of(cta) + half * 8;
      SoftmaxFold& before = softmax.before[half];
      const bool fresh = before.fresh;
      const SoftmaxFold::Factors f = before.add(softmax.part[half].max, softmax.part[half].sum);
      if (cta.lane() % 4 != 0 || query >= u.count) continue;
      AttentionEnd end;
      if (last && piece.whole) end = AttentionEnd::of(call, u.head_of(call, query), before);
      if (last && !piece.whole) {
        work.partials.max[piece.partial + query] = before.max;
        work.partials.sum[piece.partial + query] = before.sum;
      }
      room.ends[tile % 2 * kQueries + query] = {f.next, fresh ? -1.0f : f.before, end.sink,
                                                end.inverse};
    }
  }

  // The other groups.

  DEVICE void make_out(Cta& cta, const AttentionPiece& piece, const Context& c, int group,
                       const Room& room) const {
    const AttentionUnit u = work.units[piece.unit];
    Place place = place_of(cta, c);
    for (std::int32_t i = 0; i < kTiles - 1; ++i) load(cta, c, i, row_at(cta, c, i, place), room);
    const std::byte* ahead = row_at(cta, c, kTiles - 1, place);
    load_queries(cta, u, room);
    ptx::wait_copies<kTiles - 3>(cta);  // two tiles are there
    ptx::fence_copies(cta);
    meet(cta);
    Out out;
#pragma unroll 1
    for (std::int32_t i = 0; i < c.tiles;) {
#pragma unroll
      for (int n = 0; n < kValue / 4; ++n) out[n] = 0;
      for (bool more = true; more; ++i) {
        ptx::wait_copies<kTiles - 4>(cta);  // another
        ptx::fence_copies(cta);
        meet(cta);
        add_values(cta, i, group, room, out);
        load(cta, c, i + kTiles - 1, ahead, room);
        ahead = row_at(cta, c, i + kTiles, place);
        more = !c.ends_part(i);
        ptx::wgmma_wait<0>(cta, out);
      }
      fold(cta, piece, i - 1, group, room, out);
    }
    ptx::wait_copies<0>(cta);
  }

  /// The blocks that registers do not hold.
  DEVICE void load_queries(Cta& cta, const AttentionUnit& u, const Room& room) const {
    constexpr int kQuadsOfRow = (kBlocks - kHeld) * 8;
    static_assert(kQueries * kQuadsOfRow % kLoaders == 0);
    const float* const first = queries_at(u) + kHeld * 64;
#pragma unroll
    for (int turn = 0; turn < kQueries * kQuadsOfRow / kLoaders; ++turn) {
      const int i = turn * kLoaders + cta.thread();
      const int query = i / kQuadsOfRow, at = i % kQuadsOfRow;
      Quad eight = {{0, 0, 0, 0}};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (query >= u.count) continue;
        const Quad four = cta.load_quad(first + query * call.q.head_stride + at * 8 + half * 4);
#pragma unroll
        for (int j = 0; j < 2; ++j)
          eight.words[half * 2 + j] = round_pair(std::bit_cast<float>(four.words[2 * j]),
                                                 std::bit_cast<float>(four.words[2 * j + 1]));
      }
      room.quads[at / 8 * kQueryBlock + query * 8 + (at % 8 ^ query % 8)] = eight;
    }
  }

  /// A thread's row of a tile, of which eight threads have sixteen bytes of each block.
  struct Place {
    std::uint32_t block, slot;  ///< of the table; in the block
  };
  DEVICE Place place_of(Cta& cta, const Context& c) const {
    const auto position = static_cast<std::uint32_t>(c.begin + cta.thread() / 8);
    const auto size = static_cast<std::uint32_t>(call.keys.block_size);
    return {position / size, position % size};
  }
  /// Where it begins, of the tile whose place that is: the next one's, afterwards. Null: nobody
  /// sees it.
  DEVICE const std::byte* row_at(Cta& cta, const Context& c, std::int32_t tile,
                                 Place& place) const {
    const std::int32_t at = c.first(tile) + cta.thread() / 8;
    const auto size = static_cast<std::uint32_t>(call.keys.block_size);
    const std::byte* row = nullptr;
    if (at >= c.from && at < c.to)
      row = kv_slot(call.keys, c.table[place.block] * std::int64_t{size} + place.slot,
                    cta.thread() % 8 * 8);
    for (place.slot += kMmaTile; place.slot >= size; place.slot -= size) ++place.block;
    return row;
  }
  /// Begins a tile's copies, with zeros for a row that is null.
  DEVICE static void load(Cta& cta, const Context& c, std::int32_t tile, const std::byte* from,
                          const Room& room) {
    const int row = cta.thread() / 8;
    const int to = tile_at(tile) + row * 8 + (cta.thread() % 8 ^ row % 8);
    if (tile < c.tiles && from != nullptr) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        ptx::stream_later(cta, room.quads, to + block * kTileBlock, from + block * 128);
    } else if (tile < c.tiles) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        ptx::stream_later(cta, room.quads, to + block * kTileBlock, nullptr);
    }
    ptx::commit_copies(cta);
  }

  /// Shrinks O, unless nothing does: maxima seldom grow. Then begins to add a tile's values.
  DEVICE static void add_values(Cta& cta, std::int32_t tile, int group, const Room& room,
                                Out& out) {
    const int query = tile % 2 * kQueries + query_of(cta);
    const float factors[2] = {room.factors[query], room.factors[query + 8]};
    if (ptx::any(cta, factors[0] != 1 || factors[1] != 1)) {
#pragma unroll
      for (int i = 0; i < kValue / 4; ++i) out[i] = out[i] * factors[i / 2 % 2];
    }
    const ptx::SharedMatrix weights =
        ptx::shared_matrix(cta, room.quads, kWeightsAt + tile % 2 * 4, 16);
    const ptx::SharedMatrix values = ptx::shared_matrix(
        cta, room.quads, tile_at(tile) + group * (kValue / 128 * kTileBlock), kTileBlock * 16);
    ptx::wgmma_fence(cta);
#pragma unroll
    for (int k = 0; k < kMmaTile / 16; ++k)
      ptx::wgmma_by_columns(cta, ptx::moved_by(weights, k * 32),
                            ptx::moved_by(values, k * 16 * 128), out);
    ptx::wgmma_commit(cta);
  }

  /// Folds O of a part, which ends with `tile`, into what is before it.
  DEVICE void fold(Cta& cta, const AttentionPiece& piece, std::int32_t tile, int group,
                   const Room& room, const Out& out) const {
    const AttentionUnit u = work.units[piece.unit];
    float* const first =
        piece.whole ? u.out_of(call, 0) : work.partials.out + piece.partial * kValue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = query_of(cta) + half * 8;
      if (query >= u.count) continue;
      const Ends ends = room.ends[tile % 2 * kQueries + query];
      float* const to = first + query * (piece.whole ? call.out.head_stride : kValue);
      Two* const twos = reinterpret_cast<Two*>(to + group * (kValue / 2) + cta.lane() % 4 * 2);
      const auto end = [&](float x) { return (x * ends.sink) * ends.inverse; };
      const auto number = [&](int i, int e) { return out[i * 4 + half * 2 + e]; };
      if (ends.before < 0) {
#pragma unroll
        for (int i = 0; i < kValue / 16; ++i)
          twos[i * 4] = {{end(number(i, 0)), end(number(i, 1))}};
      } else {
#pragma unroll
        for (int i = 0; i < kValue / 16; ++i) {
          const Two old = twos[i * 4];
          const auto folded = [&](int e) {
            return end(fma_f32(number(i, e), ends.next, old.of[e] * ends.before));
          };
          twos[i * 4] = {{folded(0), folded(1)}};
        }
      }
    }
  }
};

/// Queries of a unit, which are of one row: the most that divide its heads. 0: too few.
std::int64_t queries_of(std::int64_t group) {
  std::int64_t queries = std::min<std::int64_t>(group, WgmmaPart::kQueries);
  while (group % queries != 0) --queries;
  return queries < 16 && queries < group ? 0 : queries;
}

bool on_sixteen(const void* data, std::int64_t bytes) {
  return (reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(bytes)) % 16 == 0;
}

void wgmma_parts(Stream& stream, const AttentionCall& call, const AttentionWork& work) {
  launch(stream, {work.piece_count}, WgmmaPart{call, work});
}

}  // namespace

bool wgmma_attention(Stream& stream, const AttentionInputs& in, const PagedRows& where,
                     const Tensor& q, const Tensor& out) {
  const std::int64_t queries = queries_of(q.heads);
  const bool latent = in.kv_heads == 1 && in.keys.dtype == DType::kBf16 &&
                      in.values.base == in.keys.base && in.values.row == in.keys.row &&
                      q.dim == WgmmaPart::kKey && out.dim == WgmmaPart::kValue;
  const bool aligned =
      on_sixteen(in.keys.base, in.keys.row * 2) && on_sixteen(q.data, q.row_stride * 4) &&
      on_sixteen(q.data, q.head_stride * 4) && on_sixteen(out.data, out.row_stride * 4) &&
      on_sixteen(out.data, out.head_stride * 4);
  if (!latent || !aligned || queries == 0 || !has_wgmma(stream)) return false;
  attention_by({wgmma_parts, queries, true}, stream, in, where, q, out);
  return true;
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
