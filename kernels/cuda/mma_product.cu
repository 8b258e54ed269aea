#include "kernels/cuda/codes.h"
#include "kernels/cuda/product_output.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/sums.h"

/// Rows by a matrix with tensor cores (`cuda_mma`): the same kernel for one row and for thousands,
/// whose bytes are read once for up to 32 of them.
///
/// A CTA computes a panel. Each of its warps has a stretch of eight blocks of k, for all outputs of
/// the panel: outputs are the 16 rows of an mma, rows of x its 8 columns, so that few rows cost few
/// operations. The sums of stretches meet in shared memory, where they are added in their order.
///
///     8 warps x a stretch: codes ──► bf16 in registers ─┬─► mma ──► sums in shared ──► in order
///                                                   x ──┘
///
/// A weight goes from memory to the lane that multiplies it: lane l has outputs 4 q .. 4 q + 3,
/// q = l / 4, and step l % 4 of a block, eight k. Of those the first four are in the block's first
/// mma and the last four in its second, whatever their format, and x is read alike.
///
/// Bytes: the panel once for 32 rows; x, which all CTAs read, from the second level cache.
/// Operations, a weight: one of 2,048 of an mma for each eight rows, and what makes a number of its
/// code: nothing for bf16, about five for FP8 and int4. By arithmetic: bound by memory up to 32
/// rows; beyond by what the second level cache gives, 16 operations a byte. Not measured on a GPU.
namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

template <class CodesOf>
struct MmaProduct {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kColumns = kMmaProductRows / 8;  ///< times eight rows of x
  static constexpr std::size_t kSums = kWarps * kMmaProductRows * WeightLayout::kOutputs;
  static constexpr std::size_t kSharedBytes = kSums * sizeof(float);
  static constexpr bool kMeets = true;
  /// A turned matrix keeps eight scales a lane.
  static constexpr int kResident = CodesOf::kTurned ? 1 : 2;
  static constexpr int kMine = kMmaProductRows / kWarps;  ///< rows that a thread adds up

  Products p;

  /// What a thread's output has come to in each of its rows.
  struct Sums {
    SliceTrees<kMine> trees;
    float terms[kMine][3] = {};
  };

  DEVICE void operator()(Cta& cta) const {
    if (!is_listed(p, cta.block_x())) return;
    const ProductItem item = item_of(p, cta.block_x());
    const std::byte* panel = item.panels + cta.block_y() * p.layout.panel_bytes;
    const Shared<Quad> sums4 = cta.shared<Quad>(0, kSums / 4);
    const Shared<float> sums = cta.shared<float>(0, kSums);
    const int blocks = static_cast<int>(p.layout.blocks);  // of a slice
    const int of_slice = (blocks + kMmaStretch - 1) / kMmaStretch;
    const int stretches = p.layout.slices * of_slice;
    Sums mine;
    int ended = 0;
#pragma unroll 1
    for (int first = 0; first < stretches; first += kWarps) {
      const int stretch = first + cta.warp();
      if (stretch < stretches) {
        const int begin = stretch % of_slice * kMmaStretch;
        const int end = begin + kMmaStretch < blocks ? begin + kMmaStretch : blocks;
        const int slice = stretch / of_slice * blocks;
        // The upper part of w with all of x, its lower part with the upper one of x.
#pragma unroll 1
        for (int part = 0; part < p.layout.parts; ++part)
          multiply(cta, item, panel, part, slice + begin, slice + end, sums4);
      }
      cta.sync();
#pragma unroll 1
      for (int s = 0; s < kWarps && first + s < stretches; ++s) {
        add(cta, item, s, sums, mine);
        if (++ended < of_slice) continue;
        ended = 0;
        end_slice(mine);
      }
      cta.sync();
    }
    const std::int64_t at = cta.block_y() * WeightLayout::kOutputs + cta.lane();
    if (at >= p.layout.n) return;
#pragma unroll
    for (int i = 0; i < kMine; ++i)
      if (const int row = cta.warp() + i * kWarps; row < item.rows)
        put_output(p, item, row, at, mine.trees.total(i));
  }

  /// The warp's stretch: blocks [begin, end) of a part, with its rows of x.
  DEVICE void multiply(Cta& cta, const ProductItem& item, const std::byte* panel, int part,
                       int begin, int end, const Shared<Quad>& sums4) const {
    const int q = cta.lane() / 4, step = cta.lane() % 4;
    const int rows = part == 0 && p.terms > 1 ? 2 * item.rows : item.rows;
    const int to = part == 0 ? 0 : 2 * item.rows;
    float acc[kColumns][2][4] = {};
#pragma unroll 1
    for (int block = begin; block < end; ++block) {
      const std::byte* from = panel + part * p.layout.part_bytes + block * p.layout.block_bytes;
      Quad quads[CodesOf::kQuads];
#pragma unroll
      for (int i = 0; i < CodesOf::kQuads; ++i)
        quads[i] = cta.load_quad(CodesOf::at(from, q, step, i));
      LaneScales<CodesOf::kTurned> scales(p.layout, panel, block, q);
      scales.begin(step);
      std::uint32_t w[2][2][4];  // halves; outputs 4 q and 4 q + 1, the other two
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int o = 0; o < 4; ++o)
          w[j / 2][o / 2][j % 2 * 2 + o % 2] = CodesOf::pair(quads, step, j, o, scales);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (c * 8 >= rows) continue;
        const Quad x = load_x(cta, item, c * 8 + q, rows, block, step);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int two = 0; two < 2; ++two)
            ptx::mma(cta, w[half][two], x.words[half * 2], x.words[half * 2 + 1], acc[c][two]);
      }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = c * 8 + step * 2 + e;
        if (row >= rows) continue;
        Quad four;
#pragma unroll
        for (int o = 0; o < 4; ++o)
          four.words[o] = std::bit_cast<std::uint32_t>(acc[c][o / 2][o % 2 * 2 + e]);
        sums4[(cta.warp() * kMmaProductRows + to + row) * 8 + q] = four;
      }
  }

  /// A lane's eight k of a block of row `row`; behind the rows their lower parts, then zeros.
  DEVICE Quad load_x(Cta& cta, const ProductItem& item, int row, int rows, int block,
                     int step) const {
    if (row >= rows) return {{0, 0, 0, 0}};
    const bool lower = row >= item.rows;
    return cta.load_quad(item.x + (lower ? row - item.rows : row) * p.x_bytes +
                         (lower ? p.low_bytes : 0) + block * std::int64_t{64} + step * 16);
  }

  /// Adds the sums of a stretch. Where there are several terms there are rows_at_once() rows, two
  /// a thread.
  DEVICE void add(Cta& cta, const ProductItem& item, int stretch, const Shared<float>& sums,
                  Sums& mine) const {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int row = cta.warp() + i * kWarps;
      if (row >= item.rows) continue;
#pragma unroll
      for (int t = 0; t < (i < 2 ? 3 : 1); ++t)
        if (t < p.terms)
          mine.terms[i][t] =
              mine.terms[i][t] +
              sums[(stretch * kMmaProductRows + t * item.rows + row) * 32 + cta.lane()];
    }
  }

  DEVICE void end_slice(Sums& mine) const {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      float sum = mine.terms[i][0];
      if (i < 2 && p.terms > 1) sum = sum + mine.terms[i][1];
      if (i < 2 && p.terms > 2) sum = sum + mine.terms[i][2];
      mine.trees.add(i, sum);
#pragma unroll
      for (float& term : mine.terms[i]) term = 0;
    }
    mine.trees.end_slice();
  }
};

template <class CodesOf>
void mma_multiply_by(Stream& stream, const Products& p) {
  launch(stream, {p.count, p.layout.panels}, MmaProduct<CodesOf>{p});
}

}  // namespace

void mma_products(Stream& stream, const Products& p) {
  switch (p.layout.codes) {
    case Codes::kFp8:
      return p.layout.turned() ? mma_multiply_by<Fp8Codes<true>>(stream, p)
                               : mma_multiply_by<Fp8Codes<false>>(stream, p);
    case Codes::kInt4:
      return p.layout.turned() ? mma_multiply_by<Int4Codes<true>>(stream, p)
                               : mma_multiply_by<Int4Codes<false>>(stream, p);
    case Codes::kFp4:
      return mma_multiply_by<Fp4Codes>(stream, p);
    default:
      return mma_multiply_by<Bf16Codes>(stream, p);
  }
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
