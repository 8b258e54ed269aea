#include <bit>

#include "kernels/cuda/codes.h"
#include "kernels/cuda/product_output.h"
#include "kernels/cuda/sums.h"

/// Rows by a matrix whose bytes are read once for up to eight of them.
///
/// A CTA computes a panel. In a chunk of 32 blocks of k, each eight lanes have a block: a lane
/// loads sixteen bytes at a time of four outputs and keeps their even and odd chains. The sums of
/// blocks meet in shared memory, where a thread an output and row adds them in their order.
///
///     chunk  x ──► shared ──► 8 warps x 4 blocks: fma ──► sums of blocks in shared ──► in order
///
/// Bytes: the panel once, and x, which all CTAs read, from the second level cache. Operations, a
/// weight: an fma for each row, and what makes a number of its code. By arithmetic bf16 is bound by
/// memory up to eight rows; FP8 and int4, whose codes take several operations a byte, may be bound
/// by those. More rows than eight read the matrix again. Not measured on a GPU.
namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

template <class CodesOf, int kX>
struct FastProduct {
  static constexpr int kThreads = 256;
  static constexpr int kChunk = 32;  ///< blocks of k, eight lanes each
  static constexpr std::size_t kQuadsOfX = kX * kChunk * 4;
  static constexpr std::size_t kSums = kX * kChunk * WeightLayout::kOutputs;
  static constexpr std::size_t kSharedBytes = kQuadsOfX * sizeof(Quad) + kSums * sizeof(float);
  static constexpr bool kMeets = true;

  Products p;

  DEVICE void operator()(Cta& cta) const {
    if (!is_listed(p, cta.block_x())) return;
    const ProductItem item = item_of(p, cta.block_x());
    const std::byte* panel = item.panels + cta.block_y() * p.layout.panel_bytes;
    const Shared<Quad> x = cta.shared<Quad>(0, kQuadsOfX);
    const Shared<float> sums = cta.shared<float>(kQuadsOfX * sizeof(Quad), kSums);
    const std::int64_t blocks = p.layout.slices * p.layout.blocks;
    const int row = cta.thread() / 32, output = cta.thread() % 32;
    SliceTree tree;
    float terms[3] = {0, 0, 0};
    std::int64_t of_slice = 0;
    for (std::int64_t first = 0; first < blocks; first += kChunk) {
      const int count = static_cast<int>(blocks - first < kChunk ? blocks - first : kChunk);
      load_x(cta, item, first, count, x);
      cta.sync();
      // The upper part of w with all of x, its lower part with the upper one of x.
#pragma unroll 1
      for (int part = 0; part < p.layout.parts; ++part)
        multiply(cta, panel, part, first, count,
                 part == 0 && p.terms > 1 ? 2 * item.rows : item.rows,
                 part == 0 ? 0 : 2 * item.rows, x, sums);
      cta.sync();
      if (row >= item.rows) continue;
      for (int block = 0; block < count; ++block) {
#pragma unroll
        for (int t = 0; t < 3; ++t)
          if (t < p.terms)
            terms[t] = terms[t] + sums[(block * kX + t * item.rows + row) * 32 + output];
        if (++of_slice < p.layout.blocks) continue;
        of_slice = 0;
        float sum = terms[0];
        if (p.terms > 1) sum = sum + terms[1];
        if (p.terms > 2) sum = sum + terms[2];
        tree.add(sum);
        terms[0] = terms[1] = terms[2] = 0;
      }
    }
    const std::int64_t at = cta.block_y() * WeightLayout::kOutputs + output;
    if (row < item.rows && at < p.layout.n) put_output(p, item, row, at, tree.total());
  }

  /// The chunk of all rows, their lower parts behind their upper ones; zeros where there is none.
  DEVICE void load_x(Cta& cta, const ProductItem& item, std::int64_t first, int count,
                     const Shared<Quad>& x) const {
    for (int i = cta.thread(); i < static_cast<int>(kQuadsOfX); i += kThreads) {
      const int row = i / (kChunk * 4), within = i % (kChunk * 4);
      const bool lower = row >= item.rows;
      const bool any = within < count * 4 && row < item.rows * (p.terms > 1 ? 2 : 1);
      const std::byte* from = item.x + first * 64 + within * 16 +
                              (lower ? row - item.rows : row) * p.x_bytes +
                              (lower ? p.low_bytes : 0);
      x[i] = any ? cta.load_quad(from) : Quad{{0, 0, 0, 0}};
    }
  }

  /// A block's sums for the first `rows` rows of x become rows [to, to + rows) of `sums`.
  DEVICE void multiply(Cta& cta, const std::byte* panel, int part, std::int64_t first, int count,
                       int rows, int to, const Shared<Quad>& x, const Shared<float>& sums) const {
    const int block = cta.thread() / 8, q = cta.thread() % 8;
    if (block >= count) return;
    const std::byte* from =
        panel + part * p.layout.part_bytes + (first + block) * p.layout.block_bytes;
    LaneScales<CodesOf::kTurned> scales(p.layout, panel, first + block, q);
    float even[kX][4] = {}, odd[kX][4] = {};
#pragma unroll 1
    for (int step = 0; step < 4; ++step) {
      Quad quads[CodesOf::kQuads];
#pragma unroll
      for (int i = 0; i < CodesOf::kQuads; ++i)
        quads[i] = cta.load_quad(CodesOf::at(from, q, step, i));
      scales.begin(step);
      std::uint32_t w[4][4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int o = 0; o < 4; ++o) w[j][o] = CodesOf::pair(quads, step, j, o, scales);
#pragma unroll
      for (int r = 0; r < kX; ++r) {
        const Quad pairs = x[(r * kChunk + block) * 4 + step];
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int o = 0; o < 4; ++o) {
            even[r][o] = fma_f32(low_half(pairs.words[j]), low_half(w[j][o]), even[r][o]);
            odd[r][o] = fma_f32(high_half(pairs.words[j]), high_half(w[j][o]), odd[r][o]);
          }
      }
    }
#pragma unroll
    for (int r = 0; r < kX; ++r) {
      if (r >= rows) continue;
#pragma unroll
      for (int o = 0; o < 4; ++o)
        sums[(block * kX + to + r) * 32 + q * 4 + o] = even[r][o] + odd[r][o];
    }
  }
};

template <class CodesOf>
void multiply_by(Stream& stream, const Products& p) {
  const Grid grid = {p.count, p.layout.panels};
  const auto sums = std::bit_ceil(static_cast<unsigned>(p.rows_max * p.terms));
  if (sums <= 1) return launch(stream, grid, FastProduct<CodesOf, 1>{p});
  if (sums <= 4) return launch(stream, grid, FastProduct<CodesOf, 4>{p});
  launch(stream, grid, FastProduct<CodesOf, kProductRows>{p});
}

}  // namespace

void fast_products(Stream& stream, const Products& p) {
  if (by_tensor_cores(stream.numerics())) return mma_products(stream, p);
  switch (p.layout.codes) {
    case Codes::kFp8:
      return p.layout.turned() ? multiply_by<Fp8Codes<true>>(stream, p)
                               : multiply_by<Fp8Codes<false>>(stream, p);
    case Codes::kInt4:
      return p.layout.turned() ? multiply_by<Int4Codes<true>>(stream, p)
                               : multiply_by<Int4Codes<false>>(stream, p);
    case Codes::kFp4:
      return multiply_by<Fp4Codes>(stream, p);
    default:
      return multiply_by<Bf16Codes>(stream, p);
  }
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
