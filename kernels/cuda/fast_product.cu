#include <bit>

#include "kernels/cuda/codes.h"
#include "kernels/cuda/product_output.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/sums.h"

/// Rows by a matrix whose bytes are read once for up to eight of them.
///
/// A CTA computes a panel. In a chunk of 32 blocks of k, each eight lanes have a block: a lane
/// loads sixteen bytes at a time of four outputs and keeps their even and odd chains. The sums of
/// blocks meet in shared memory, where a thread an output and row adds them in their order.
///
///     chunk  x ──► shared ──► 8 warps x 4 blocks: fma ──► sums of blocks in shared ──► in order
///
/// Where panels are few, several CTAs share one, each some of its chunks: the sums of all blocks
/// then meet in global memory, and the last of the CTAs adds them, in the same order.
///
///     CTAs of a panel: fma ──► sums of blocks in global memory ──► the last: in order
///
/// A lane has the codes of its next steps on their way to shared memory, where nobody else touches
/// them: 128 bytes, or of fewer than 16 bits 64 with more than four rows, whose sums take the room.
/// By arithmetic a multiprocessor has 96 KB on their way with one row (three CTAs), 64 KB or 32 KB
/// with more (two); 3 TB/s at 700 ns want 16 KB.
///
/// Bytes: the panel once, and x, which all CTAs read, from the second level cache. A shared panel
/// has four more for 32 weights and a row, written and read once, which that cache holds.
/// Operations, a weight: an fma for each row, and what makes a number of its code: all in all, as
/// counted on an H100, some 17 instructions of a lane for bf16 with eight rows. bf16 is bound by
/// memory, and from about eight rows on by those; the others are bound by those. More rows than
/// eight read the matrix again. Measured on an H100, 7168 x 16384, over a copy (2,976 GB/s): bf16
/// 0.91 with one row, 0.79 with eight; FP8 0.75 and 0.36; int4 0.31 and 0.16.
namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

/// What a thread's output comes to in its row, block after block.
struct OrderedSums {
  SliceTree tree;
  float terms[3] = {0, 0, 0};
  int of_slice = 0;

  /// After the terms of a slice have been added.
  DEVICE void end_slice(const Products& p) {
    of_slice = 0;
    float sum = terms[0];
    if (p.terms > 1) sum = sum + terms[1];
    if (p.terms > 2) sum = sum + terms[2];
    tree.add(sum);
    terms[0] = terms[1] = terms[2] = 0;
  }
};

template <class CodesOf, int kX, int kRing>
struct FastProduct {
  static constexpr int kThreads = 256;
  static constexpr int kChunk = 32;  ///< blocks of k, eight lanes each
  static constexpr int kQuadsOfX = kX * kChunk * 4;
  static constexpr int kStages = 2;  ///< chunks of x: this one, and the next on its way
  /// The next chunk's scales, too; the sums of eight rows leave no registers for them.
  static constexpr bool kScalesAhead = kX < kProductRows;
  static constexpr int kBlockSums = kX * WeightLayout::kOutputs;
  static constexpr std::size_t kQuadsOfSums = kChunk * kBlockSums / 4;
  /// A lane's steps that are on their way, in kRing quads.
  static constexpr unsigned kAhead = kRing * CodesOf::kSteps / CodesOf::kQuads;
  static constexpr std::size_t kQuadsAhead = std::size_t{kThreads} * kRing;
  static constexpr std::size_t kSumsAt = kStages * kQuadsOfX * sizeof(Quad);
  static constexpr std::size_t kAheadAt = kSumsAt + kQuadsOfSums * sizeof(Quad);
  static constexpr std::size_t kOrderedAt = kAheadAt + kQuadsAhead * sizeof(Quad);
  static constexpr std::size_t kJobAt = kOrderedAt + kThreads * sizeof(OrderedSums);
  static constexpr std::size_t kSharedBytes = kJobAt + 2 * sizeof(Quad);
  static constexpr bool kMeets = true;
  /// A turned matrix keeps eight scales a lane, and four bits are expanded by way of others.
  static constexpr int kResident =
      CodesOf::kScaling == Scaling::kPerK || (CodesOf::kQuads == 1 && kX == kProductRows) ? 1
      : kX == 1                                                                           ? 3
                                                                                          : 2;

  using Scales = LaneScales<CodesOf::kScaling>;
  static constexpr bool kPerK = CodesOf::kScaling == Scaling::kPerK;
  /// Of a CTA: blocks [begin, end) of a panel, for so many rows.
  struct Job {
    const std::byte *panel = nullptr, *x = nullptr;
    int begin = 0, end = 0, rows = 0;
  };

  Products p;
  std::int32_t scale_blocks;  ///< that have a scale in common
  std::int32_t sharers = 1;
  float* met = nullptr;  ///< of several that share: [items, panels, blocks, kX, 32]

  DEVICE void operator()(Cta& cta) const {
    if (!is_listed(p, cta.block_x())) return;
    const int blocks = static_cast<int>(p.layout.slices * p.layout.blocks);
    const int chunks = (blocks + kChunk - 1) / kChunk, mine = (chunks + sharers - 1) / sharers;
    if (cta.thread() == 0) {
      const ProductItem item = item_of(p, cta.block_x());
      Job to;
      to.panel = item.panels + panel_at(cta) * p.layout.panel_bytes;
      to.x = item.x;
      to.rows = item.rows;
      to.begin = static_cast<int>(cta.block_y()) % sharers * mine * kChunk;
      to.end = to.begin + mine * kChunk < blocks ? to.begin + mine * kChunk : blocks;
      cta.shared<Job>(kJobAt, 1)[0] = to;
    }
    ordered(cta) = OrderedSums{};
    cta.sync();
    multiply_all(cta);
    if (sharers > 1) {
      if (!cta.last_of(p.came + group(cta), static_cast<std::uint32_t>(sharers))) return;
      add_met(cta, blocks);
    }
    const ProductItem item = item_of(p, cta.block_x());
    const int row = cta.thread() / 32;
    const std::int64_t output = panel_at(cta) * WeightLayout::kOutputs + cta.thread() % 32;
    if (row < item.rows && output < p.layout.n)
      put_output(p, item, row, output, static_cast<OrderedSums>(ordered(cta)).tree.total());
  }

  DEVICE int panel_at(const Cta& cta) const { return static_cast<int>(cta.block_y()) / sharers; }
  /// Of the CTAs that share a panel.
  DEVICE int group(const Cta& cta) const {
    return static_cast<int>(cta.block_x() * p.layout.panels) + panel_at(cta);
  }
  /// The sums of their blocks from `block` on.
  DEVICE Quad* met_at(const Cta& cta, int block) const {
    const std::int64_t blocks = p.layout.slices * p.layout.blocks;
    return reinterpret_cast<Quad*>(met + (group(cta) * blocks + block) * kBlockSums);
  }
  // Both in shared memory, since multiplying wants all registers; the first is the thread's.
  DEVICE decltype(auto) ordered(const Cta& cta) const {
    return cta.shared<OrderedSums>(kOrderedAt, kThreads)[cta.thread()];
  }
  DEVICE Job job(const Cta& cta) const { return cta.shared<Job>(kJobAt, 1)[0]; }
  DEVICE Shared<Quad> sums_room(const Cta& cta) const {
    return cta.shared<Quad>(kSumsAt, kQuadsOfSums);
  }

  /// Blocks [begin, end): adds their sums, or leaves them where those of several CTAs meet. The x
  /// and the scales of a chunk are asked for while the one before is computed.
  DEVICE void multiply_all(Cta& cta) const {
    const int block = cta.thread() / 8;
    copy_x(cta, job(cta).begin, 0);
    ptx::commit_copies(cta);
    unsigned n = 0;
    Asked asked;
    for (; n < kAhead; ++n) ask(cta, n, asked);
    Scales next = scales_of(cta, job(cta).begin);
    int stage = 0;
#pragma unroll 1
    for (int first = job(cta).begin; first < job(cta).end; first += kChunk, stage = 1 - stage) {
      const int left = job(cta).end - first, count = left < kChunk ? left : kChunk;
      Scales scales = kScalesAhead ? next : scales_of(cta, first);
      if constexpr (!kPerK) scales.settle(p.layout);
      // What came behind x: the first chunk's first steps, or the last three of the chunk before.
      ptx::wait_copies<(kAhead < 3 ? kAhead : 3)>(cta);
      cta.sync();
      if (left > kChunk) {
        copy_x(cta, first + kChunk, 1 - stage);  // goes with the next step
        if constexpr (kScalesAhead) next = scales_of(cta, first + kChunk);
      }
      // The upper part of w with all of x, its lower part with the upper one of x.
#pragma unroll 1
      for (int part = 0; part < p.layout.parts && block < count; ++part)
        multiply(cta, n, asked, first, stage, part, scales);
      if (sharers > 1) continue;
      cta.sync();
      add(cta, count);
    }
  }

  /// Of the thread's block of a chunk; behind the last one, the chunk's first. Those of single k
  /// are asked for step by step.
  DEVICE Scales scales_of(Cta& cta, int first) const {
    Scales scales;
    if constexpr (!kPerK) {
      const int block = first + cta.thread() / 8;
      scales.ask(p.layout, walk_of(cta, block < job(cta).end ? block : first), cta.thread() % 8, 0);
    }
    return scales;
  }
  DEVICE ScaleWalk<CodesOf::kScaling> walk_of(Cta& cta, int block) const {
    return {p.layout, job(cta).panel, block, scale_blocks};
  }

  /// A thread's block that is asked for.
  struct Asked {
    const std::byte* from = nullptr;
    bool any = false;
  };
  /// Asks for the codes of the thread's n-th step, if there is such a step.
  DEVICE void ask(Cta& cta, unsigned n, Asked& asked) const {
    const int step = static_cast<int>(n % 4);
    if (step == 0) begin_block(cta, static_cast<int>(n / 4), asked);
    if (step % CodesOf::kSteps == 0 && asked.any) {
#pragma unroll
      for (int i = 0; i < CodesOf::kQuads; ++i) {
        const std::byte* from = CodesOf::at(asked.from, 0, step, i);
        if (from == nullptr) __builtin_unreachable();
        ptx::copy_later(cta, ahead_room(cta), ahead_at(cta, n, i), from);
      }
    }
    ptx::commit_copies(cta);
  }
  /// The thread's n-th block, of all parts.
  DEVICE void begin_block(Cta& cta, int n, Asked& asked) const {
    const Job of = job(cta);
    const bool two = p.layout.parts > 1;
    const int block = of.begin + (two ? n / 2 : n) * kChunk + cta.thread() / 8;
    asked.any = block < of.end;
    const std::byte* from = of.panel + (two ? n % 2 : 0) * static_cast<int>(p.layout.part_bytes) +
                            block * static_cast<int>(p.layout.block_bytes);
    asked.from = CodesOf::at(from, cta.thread() % 8, 0, 0);
  }

  DEVICE Shared<Quad> ahead_room(const Cta& cta) const {
    return cta.shared<Quad>(kAheadAt, kQuadsAhead);
  }
  DEVICE static int ahead_at(const Cta& cta, unsigned n, int i) {
    const auto at = static_cast<int>(n % kAhead / CodesOf::kSteps);
    return (at * CodesOf::kQuads + i) * kThreads + cta.thread();
  }

  DEVICE Shared<Quad> x_room(const Cta& cta) const {
    return cta.shared<Quad>(0, kStages * kQuadsOfX);
  }
  /// The chunk of all rows, their lower parts behind their upper ones; zeros where there is none.
  DEVICE void copy_x(Cta& cta, int first, int stage) const {
    const Job of = job(cta);
    const int rows = of.rows, all = rows * (p.terms > 1 ? 2 : 1);
    const int quads = (of.end - first < kChunk ? of.end - first : kChunk) * 4;
#pragma unroll
    for (int at = 0; at < kQuadsOfX; at += kThreads) {
      const int i = at + cta.thread();
      if (kQuadsOfX < kThreads && i >= kQuadsOfX) break;
      const int row = i / (kChunk * 4), within = i % (kChunk * 4);
      const bool lower = row >= rows;
      const std::byte* from = of.x + first * std::int64_t{64} + within * 16 +
                              (lower ? row - rows : row) * p.x_bytes + (lower ? p.low_bytes : 0);
      ptx::copy_later(cta, x_room(cta), stage * kQuadsOfX + i,
                      within < quads && row < all ? from : nullptr);
    }
  }

  /// A block's sums of a part, whose rows lie behind each other as those of x do. Steps are counted
  /// by those that have been asked for, `n`.
  DEVICE void multiply(Cta& cta, unsigned& n, Asked& asked, int first, int stage, int part,
                       Scales& scales) const {
    const Shared<Quad> x = x_room(cta);
    const int block = cta.thread() / 8, q = cta.thread() % 8;
    float even[kX][4] = {}, odd[kX][4] = {};
#pragma unroll 1
    for (int step = 0; step < 4; ++step, ++n) {
      ptx::wait_copies<kAhead - CodesOf::kSteps>(cta);
      Quad quads[CodesOf::kQuads];
#pragma unroll
      for (int i = 0; i < CodesOf::kQuads; ++i) quads[i] = ahead_room(cta)[ahead_at(cta, n, i)];
      ask(cta, n - (CodesOf::kSteps - 1), asked);
      if constexpr (kPerK) {
        scales.ask(p.layout, walk_of(cta, first + block), q, step);
        scales.settle(p.layout);
      }
      std::uint32_t w[4][4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int o = 0; o < 4; ++o) w[j][o] = CodesOf::pair(quads, step, j, o, scales);
#pragma unroll
      for (int r = 0; r < kX; ++r) {
        const Quad pairs = x[stage * kQuadsOfX + (r * kChunk + block) * 4 + step];
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int o = 0; o < 4; ++o) {
            even[r][o] = fma_f32(low_half(pairs.words[j]), low_half(w[j][o]), even[r][o]);
            odd[r][o] = fma_f32(high_half(pairs.words[j]), high_half(w[j][o]), odd[r][o]);
          }
      }
    }
    const int rows = job(cta).rows;
    const int to = part == 0 ? 0 : 2 * rows, count = part == 0 && p.terms > 1 ? 2 * rows : rows;
#pragma unroll
    for (int r = 0; r < kX; ++r) {
      if (r >= count) continue;
      Quad four;
#pragma unroll
      for (int o = 0; o < 4; ++o)
        four.words[o] = std::bit_cast<std::uint32_t>(even[r][o] + odd[r][o]);
      const int quad = (block * kX + to + r) * 8 + q;
      if (sharers > 1)
        met_at(cta, first)[quad] = four;
      else
        sums_room(cta)[quad] = four;
    }
  }

  /// The sums of a chunk, in shared memory: those of a slice at a time.
  DEVICE void add(Cta& cta, int count) const {
    const Shared<float> sums = cta.shared<float>(kSumsAt, kQuadsOfSums * 4);
    const int rows = job(cta).rows, row = cta.thread() / 32, output = cta.thread() % 32;
    const int of_slice = static_cast<int>(p.layout.blocks);
    if (row >= rows) return;
    OrderedSums all = ordered(cta);
#pragma unroll 1
    for (int begin = 0; begin < count;) {
      const int left = begin + of_slice - all.of_slice, end = left < count ? left : count;
#pragma unroll
      for (int t = 0; t < 3; ++t) {
        if (t >= p.terms) continue;
        float sum = all.terms[t];
#pragma unroll 8
        for (int block = begin; block < end; ++block)
          sum = sum + sums[(block * kX + t * rows + row) * 32 + output];
        all.terms[t] = sum;
      }
      all.of_slice += end - begin;
      if (all.of_slice == of_slice) all.end_slice(p);
      begin = end;
    }
    ordered(cta) = all;
  }

  /// The same of all chunks, as the CTAs have brought them: a thread fetches a quad for each row of
  /// x, the next chunk's while this one is added.
  DEVICE void add_met(Cta& cta, int blocks) const {
    const int rows = job(cta).rows * p.terms;
    Quad ahead[kX] = {};
    const auto fetch = [&](int first) {
#pragma unroll
      for (int i = 0; i < kX; ++i) {
        const int quad = i * kThreads + cta.thread(), block = quad / 8 / kX;
        if (quad / 8 % kX < rows && first + block < blocks)
          ahead[i] = cta.load_joined(met_at(cta, first) + quad);
      }
    };
    fetch(0);
#pragma unroll 1
    for (int first = 0; first < blocks; first += kChunk) {
#pragma unroll
      for (int i = 0; i < kX; ++i) sums_room(cta)[i * kThreads + cta.thread()] = ahead[i];
      cta.sync();
      fetch(first + kChunk);
      add(cta, blocks - first < kChunk ? blocks - first : kChunk);
      cta.sync();
    }
  }
};

template <class Kernel>
void multiply_by(Stream& stream, const Products& p) {
  const std::int64_t blocks = p.layout.slices * p.layout.blocks;
  const std::int64_t chunks = ceil_div(blocks, Kernel::kChunk);
  constexpr std::int64_t kMost = Kernel::kChunk * kProductRows * WeightLayout::kOutputs * 4;
  const std::int64_t sharers = p.sharers(chunks, kMost);
  Stream::Scope scope(stream);
  Kernel kernel{p, blocks_of_scale(p.layout), static_cast<std::int32_t>(sharers)};
  if (sharers > 1)
    kernel.met = stream.scratch().take<float>(
        static_cast<std::size_t>(p.count * p.layout.panels * blocks * Kernel::kBlockSums));
  launch(stream, {p.count, p.layout.panels * sharers}, kernel);
}

/// What is on its way takes as much shared memory as a GPU has.
template <class CodesOf>
void multiply_rows(Stream& stream, const Products& p) {
  constexpr int kLarge = 8, kSmall = 4, kOfEight = CodesOf::kQuads < 4 ? kSmall : kLarge;
  using Eight = FastProduct<CodesOf, kProductRows, kOfEight>;
  const auto sums = std::bit_ceil(static_cast<unsigned>(p.rows_max * p.terms));
  if (sums <= 1) return multiply_by<FastProduct<CodesOf, 1, kLarge>>(stream, p);
  if (sums <= 4) return multiply_by<FastProduct<CodesOf, 4, kLarge>>(stream, p);
  if (Eight::kSharedBytes <= shared_bytes(stream)) return multiply_by<Eight>(stream, p);
  multiply_by<FastProduct<CodesOf, kProductRows, kSmall>>(stream, p);
}

}  // namespace

void fast_products(Stream& stream, const Products& p) {
  if (by_tensor_cores(stream.numerics())) return mma_products(stream, p);
  with_codes(p.layout, [&]<class CodesOf>() { multiply_rows<CodesOf>(stream, p); });
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
