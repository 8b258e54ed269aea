#include "kernels/cuda/codes.h"
#include "kernels/cuda/product_output.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/sums.h"
#include "runtime/limits.h"

/// Rows by a matrix with tensor cores (`cuda_mma`): the same kernel for one row and for thousands,
/// whose bytes are read once for up to 32 of them.
///
/// Outputs are the 16 rows of an mma, rows of x its 8 columns, so that few rows cost few
/// operations. A warp has a panel, and in each round a stretch of eight blocks of k. A CTA has four
/// panels by two stretches, or where there are too few of those a panel by eight stretches. What
/// warps add to becomes sums in shared memory, which threads add in their order, four at a time.
///
///     x ── copies, two steps ──► shared ──────────────────┐
///     codes ── blocks ahead ──► registers ──► bf16 ───────┴─► mma ──► sums in shared ──► in order
///
/// Up to eight rows are a kernel of their own: fewer sums leave registers for more blocks ahead.
///
/// A weight goes from memory to the lane that multiplies it: lane l has outputs 4 q .. 4 q + 3,
/// q = l / 4, and step l % 4 of a block, eight k. Of those the first four are in the block's first
/// mma and the last four in its second, whatever their format, and x is read alike.
///
/// Where outputs are few, CTAs share k: each passes sums through memory to the last of them, which
/// adds them in their order. How many do depends on the grid, and no bit on how many.
///
/// Bytes: the panels once for 32 rows; x from the second level cache, for FP8 half a byte a weight
/// with 32 rows and four panels, two with one panel. Where CTAs share, 4 bytes a row and output are
/// written and read for each of them, or for each stretch of a matrix of one slice: half a byte a
/// weight of FP8 with 32 rows.
/// Operations, as counted on an H100: a lane takes 6 instructions a weight of FP8 with one row and
/// 7 with 32; 3 make a number of its code, half a one is its part of mma. Two CTAs issue two a
/// cycle of four: they wait for codes, and for each other's at barriers. Measured on an H100,
/// 7168 x 16384 over a copy (2,976 GB/s): bf16 0.91 with one row, 0.85 with eight; FP8 0.79 and
/// 0.71; int4 (with twice as many blocks ahead, which sm_80 has no registers for) 0.31
/// and 0.29; FP8 experts, 16 of them with 32 rows each, 0.57. Copies of codes to shared memory
/// (cp.async) were slower, by a third: what reads x waits behind them.
///
/// CTAs of V3: 256 for 8 experts' gates and ups, 512 for 16, 896 for 16 downs; q_b 192, o 224 (four
/// share), a shared expert's down 224 (four share), its gate and up 128 (256 up to 24 rows: two
/// share), q_a 192, kv_a 72 and the gate 32 (four share).
namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

template <class CodesOf, int kPanels, int kColumns>
struct MmaProduct {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kStreams = kWarps / kPanels;                      ///< stretches at a time
  static constexpr int kRows = kColumns * 8;                             ///< of x
  static constexpr int kSumRows = kColumns == 1 ? 16 : kMmaProductRows;  ///< of all terms
  static constexpr int kStep =
      kPanels > 1 && kColumns == 1 ? 4 : 2;           ///< blocks of x that are copied together
  static constexpr int kSteps = kMmaStretch / kStep;  ///< of a turn
  /// Blocks that are asked for. Sums of few rows take few registers, a scale for each output four.
  static constexpr bool kFourBits = CodesOf::kQuads / CodesOf::kSteps == 1;
  static constexpr bool kFewScales = CodesOf::kScaling != Scaling::kPerOutput;
  static constexpr int kAheadQuads =
      (kColumns > 1 ? 2 : 4) * (kFewScales || (kColumns == 1 && !kFourBits) ? 2 : 1);
  static constexpr int kAhead = std::clamp(kAheadQuads / CodesOf::kQuads, 1, kStep);
  static constexpr bool kSliced = kPanels > 1;  ///< there may be several slices
  static constexpr int kSumsOfWarp = kSumRows * WeightLayout::kOutputs;
  static constexpr int kLevels = kSliced ? 3 : 0;  ///< of the tree of slices, which wait
  static constexpr int kStageQuads = kStreams * kStep * kRows * 4;
  static constexpr std::size_t kSums = kWarps * kSumsOfWarp,
                               kHeld = kLevels * kPanels * kSumsOfWarp;
  static constexpr std::size_t kXAt = (kSums + kHeld) * sizeof(float);
  static constexpr std::size_t kSharedBytes = kXAt + 2 * kStageQuads * sizeof(Quad);
  static constexpr bool kMeets = true;
  /// A turned matrix keeps eight scales a lane, and four bits are expanded by way of others.
  static constexpr int kResident =
      CodesOf::kScaling == Scaling::kPerK || (kFourBits && kColumns > 1) ? 1 : 2;

  Products p;
  std::int32_t shares;        ///< CTAs that have a part of k each
  std::int32_t scale_blocks;  ///< that have a scale in common
  float* passed;              ///< what they pass to the last of them

  /// A stretch and a part: room for eight blocks, of which `count` are there.
  struct Turn {
    int at, count;  ///< the first in the panel
  };
  /// Of two that lie in registers.
  DEVICE static Turn either(bool first, const Turn& a, const Turn& b) {
    return {first ? a.at : b.at, first ? a.count : b.count};
  }
  /// A lane's way through codes: the next block.
  struct Codes {
    const std::byte* from;
    ScaleWalk<CodesOf::kScaling> scales;
  };
  /// A block that is on its way.
  struct Ahead {
    Quad quads[CodesOf::kQuads];
    LaneScales<CodesOf::kScaling> scales;
  };

  /// A CTA as a thread sees it.
  struct Work {
    const std::byte* x_rows;
    const std::byte* panel;  ///< the warp's; behind the last one, that once more
    int rows;                ///< of the item
    int of_slice;            ///< stretches
    int first, last;         ///< the same
    Shared<Quad> sums4, held4, x;
    Shared<float> sums;  ///< the same as sums4
  };

  DEVICE void operator()(Cta& cta) const {
    if (!is_listed(p, cta.block_x())) return;
    const Work w = work_of(cta);
    Turn now = turn_of(w, stretch_of(cta, w, 0));
    const std::byte* x = x_of(cta, w, now);
    copy_x(cta, w, x, now.count, 0, 0);
    Codes codes = codes_of(cta, w, now, 0);
    Ahead ahead[kAhead] = {};
#pragma unroll
    for (int b = 0; b < kAhead; ++b) ask(cta, codes, now, b, ahead[b]);
    clear(cta, w);
    int turn = 0, slice = 0, slice_end = w.of_slice;  // behind w.first, which begins a slice
#pragma unroll 1
    for (; first_of(w, turn) < w.last; ++turn) {
      float acc[kColumns][2][4] = {};
      const Turn next = turn_of(w, stretch_of(cta, w, turn + 1));
#pragma unroll 1
      for (int step = 0; step < kSteps; ++step) {
        const bool ends = step + 1 == kSteps;
        ptx::wait_copies<0>(cta);
        cta.sync();
        if (ends) x = x_of(cta, w, next);
        copy_x(cta, w, x, ends ? next.count : now.count, turn + ends, (step + 1) % kSteps);
        if (step == 0 && turn > 0 && part_of(turn) == 0) add_round(cta, w, turn, slice, slice_end);
#pragma unroll
        for (int b = 0; b < kStep; ++b) {
          const int block = step * kStep + b, then = block + kAhead;
          Ahead& here = ahead[b % kAhead];
          here.scales.settle(p.layout);
          // Zeros behind the last block of a step change nothing.
          if (step * kStep < now.count)
            multiply(cta, w, x_at(cta, step % 2, b, cta.lane() / 4), here, acc);
          if (then == kMmaStretch) codes = codes_of(cta, w, next, turn + 1);
          ask(cta, codes, either(then >= kMmaStretch, next, now), then % kMmaStretch, here);
        }
      }
      if (now.count > 0) keep(cta, w, turn, acc);
      now = next;
    }
    cta.sync();
    add_round(cta, w, turn, slice, slice_end);
    put(cta, w);
  }

  DEVICE Work work_of(Cta& cta) const {
    const WeightLayout& l = p.layout;
    const ProductItem item = item_of(p, cta.block_x());
    const int panel = panel_of(cta), panels = static_cast<int>(l.panels);
    const int of_slice = (static_cast<int>(l.blocks) + kMmaStretch - 1) / kMmaStretch;
    const int stretches = l.slices * of_slice, of_share = (stretches + shares - 1) / shares;
    const int first = share_of(cta) * of_share, end = first + of_share;
    return {.x_rows = item.x,
            .panel = item.panels + (panel < panels ? panel : panels - 1) * l.panel_bytes,
            .rows = item.rows,
            .of_slice = of_slice,
            .first = first,
            .last = end < stretches ? end : stretches,
            .sums4 = cta.shared<Quad>(0, kSums / 4),
            .held4 = cta.shared<Quad>(kSums * sizeof(float), kHeld / 4),
            .x = cta.shared<Quad>(kXAt, 2 * kStageQuads),
            .sums = cta.shared<float>(0, kSums)};
  }
  DEVICE int groups() const { return (static_cast<int>(p.layout.panels) + kPanels - 1) / kPanels; }
  DEVICE int share_of(Cta& cta) const { return static_cast<int>(cta.block_y()) / groups(); }
  /// The warp's.
  DEVICE int panel_of(Cta& cta) const {
    return static_cast<int>(cta.block_y()) % groups() * kPanels + cta.warp() % kPanels;
  }
  /// The CTA's group of panels, of all items.
  DEVICE std::int64_t group_of(Cta& cta) const {
    return cta.block_x() * groups() + static_cast<int>(cta.block_y()) % groups();
  }

  /// The first stretch of its round, and the warp's.
  DEVICE int first_of(const Work& w, int turn) const { return w.first + round_of(turn) * kStreams; }
  DEVICE int stretch_of(Cta& cta, const Work& w, int turn) const {
    return first_of(w, turn) + cta.warp() / kPanels;
  }
  /// There are one or two parts.
  DEVICE int round_of(int turn) const { return p.layout.parts > 1 ? turn / 2 : turn; }
  DEVICE int part_of(int turn) const { return p.layout.parts > 1 ? turn % 2 : 0; }
  DEVICE Turn turn_of(const Work& w, int stretch) const {
    const int slice = kSliced && p.layout.slices > 1 ? stretch / w.of_slice : 0;
    const int blocks = static_cast<int>(p.layout.blocks);
    const int begin = (stretch - slice * w.of_slice) * kMmaStretch, left = blocks - begin;
    const int count = left < kMmaStretch ? left : kMmaStretch;
    return {slice * blocks + begin, stretch < w.last ? count : 0};
  }
  /// Rows of x: the upper part of w takes all, the lower ones behind the upper ones; its lower part
  /// takes the upper ones.
  DEVICE int rows_of(const Work& w, int part) const {
    return part == 0 && p.terms > 1 ? 2 * w.rows : w.rows;
  }

  DEVICE const std::byte* x_of(Cta& cta, const Work& w, const Turn& turn) const {
    const int row = first_x(cta);
    return w.x_rows + row * p.x_bytes + (row < w.rows ? 0 : to_lower(w)) +
           turn.at * std::int64_t{64} + cta.lane() % 4 * 16;
  }
  /// From a row behind the last to the lower part of that which it stands for.
  DEVICE std::int64_t to_lower(const Work& w) const { return p.low_bytes - w.rows * p.x_bytes; }
  /// Of the rows that a lane copies.
  DEVICE static int first_x(Cta& cta) { return cta.warp() % kPanels * 8 + cta.lane() / 4; }
  /// x for a step of the warp's stretch, by all warps that have that stretch: of each block eight
  /// rows at a time, zeros behind the last row and the last block.
  DEVICE void copy_x(Cta& cta, const Work& w, const std::byte*& x, int count, int turn,
                     int step) const {
    const int rows = rows_of(w, part_of(turn));
    if (step * kStep < count) {
#pragma unroll
      for (int i = 0; i < ceil_div(kColumns, kPanels); ++i) {
        const int row = first_x(cta) + i * kPanels * 8;
        if (row >= kRows) break;
        const std::byte* from = x + i * kPanels * 8 * p.x_bytes;
        if (i > 0 && row >= w.rows && first_x(cta) < w.rows) from += to_lower(w);
#pragma unroll
        for (int b = 0; b < kStep; ++b)
          ptx::copy_later(cta, w.x, x_at(cta, step % 2, b, row),
                          row < rows && step * kStep + b < count ? from + b * 64 : nullptr);
      }
    }
    ptx::commit_copies(cta);
    x += kStep * 64;
  }
  /// Where a lane's eight k of a row lie, of one of a stage's blocks.
  DEVICE static int x_at(Cta& cta, int stage, int block, int row) {
    return (((stage * kStreams + cta.warp() / kPanels) * kStep + block) * kRows + row) * 4 +
           cta.lane() % 4;
  }

  DEVICE Codes codes_of(Cta& cta, const Work& w, const Turn& of, int turn) const {
    const std::byte* block =
        w.panel + (part_of(turn) == 0 ? 0 : p.layout.part_bytes) + of.at * p.layout.block_bytes;
    return {CodesOf::at(block, cta.lane() / 4, cta.lane() % 4, 0),
            ScaleWalk<CodesOf::kScaling>(p.layout, w.panel, of.at, scale_blocks)};
  }
  /// Loads a block of the turn; zeros behind the last one.
  DEVICE void ask(Cta& cta, Codes& codes, const Turn& turn, int block, Ahead& to) const {
    const bool any = block < turn.count;
#pragma unroll
    for (int i = 0; i < CodesOf::kQuads; ++i)
      to.quads[i] = any ? cta.load_quad(CodesOf::at(codes.from, 0, 0, i)) : Quad{{0, 0, 0, 0}};
    if (any) to.scales.ask(p.layout, codes.scales, cta.lane() / 4, cta.lane() % 4);
    codes.from += p.layout.block_bytes;
    codes.scales.next(p.layout, scale_blocks);
  }

  /// Of a block, one half of the k after the other: outputs 4 q and 4 q + 1, and the other two.
  DEVICE void multiply(Cta& cta, const Work& w, int x_at, const Ahead& codes,
                       float (&acc)[kColumns][2][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t a[2][4];
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int o = 0; o < 4; ++o)
          a[o / 2][j * 2 + o % 2] =
              CodesOf::pair(codes.quads, cta.lane() % 4, half * 2 + j, o, codes.scales);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const Quad x = w.x[x_at + c * 32];
#pragma unroll
        for (int two = 0; two < 2; ++two)
          ptx::mma(cta, a[two], x.words[half * 2], x.words[half * 2 + 1], acc[c][two]);
      }
    }
  }

  /// The sums of a turn: to the CTA's threads, or to the last CTA. Those of the first stream are
  /// added to what earlier rounds have left there.
  DEVICE void keep(Cta& cta, const Work& w, int turn, const float (&acc)[kColumns][2][4]) const {
    const int part = part_of(turn);
    const int rows = rows_of(w, part), to = part == 0 ? 0 : 2 * w.rows;
    const int first = cta.lane() % 4 * 2, q = cta.lane() / 4;  // rows, and outputs 4 q to 4 q + 3
    const int at = cta.warp() * kSumsOfWarp / 4 + (to + first) * 8 + (q ^ turned(to + first));
    Quad* there = nullptr;
    if (passes_stretches())
      there = reinterpret_cast<Quad*>(passed + stretch_at(cta, w, stretch_of(cta, w, turn))) +
              (to + first) * 8 + q;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = c * 8 + e;
        if (first + row >= rows) continue;
        Quad four;
#pragma unroll
        for (int o = 0; o < 4; ++o)
          four.words[o] = std::bit_cast<std::uint32_t>(acc[c][o / 2][o % 2 * 2 + e]);
        if (there != nullptr) {
          there[row * 8] = four;
          continue;
        }
        if (cta.warp() < kPanels) four = sum_of(w.sums4[at + row * 8], four);
        w.sums4[at + row * 8] = four;
      }
  }
  /// Rows whose sums a warp writes at once have them in different banks.
  DEVICE static int turned(int row) { return row / 2 % 4 * 2; }
  /// Of the first stream's sums the thread's in a row, for an output of its warp's panel.
  DEVICE static int sum_at(Cta& cta, int row) {
    return cta.warp() % kPanels * kSumsOfWarp + row * WeightLayout::kOutputs +
           (cta.lane() ^ turned(row) * 4);
  }
  /// body(row): of the item's rows that are the thread's.
  template <class Body>
  DEVICE void each_row(Cta& cta, const Work& w, const Body& body) const {
#pragma unroll 2
    for (int row = cta.warp() / kPanels; row < w.rows; row += kStreams) body(row);
  }
  /// body(i): of the quads of the first rows of the panel's sums that are the thread's.
  template <class Body>
  DEVICE static void each_quad(Cta& cta, int rows, const Body& body) {
#pragma unroll 1
    for (int i = cta.warp() / kPanels * 32 + cta.lane(); i < rows * 8; i += kStreams * 32)
      body(cta.warp() % kPanels * (kSumsOfWarp / 4) + i);
  }
  DEVICE static Quad sum_of(const Quad& a, const Quad& b) {
    Quad sum;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sum.words[i] = std::bit_cast<std::uint32_t>(std::bit_cast<float>(a.words[i]) +
                                                  std::bit_cast<float>(b.words[i]));
    return sum;
  }
  DEVICE void clear(Cta& cta, const Work& w) const {
    each_quad(cta, p.terms * w.rows, [&](int i) { w.sums4[i] = Quad{{0, 0, 0, 0}}; });
  }

  /// Adds the sums of the round of which `turn` is the next, stretch by stretch. `slice_end`
  /// stretches behind the CTA's first, its `slice` ends.
  DEVICE void add_round(Cta& cta, const Work& w, int turn, int& slice, int& slice_end) const {
    const int first = first_of(w, turn) - kStreams;
    if (passes_stretches()) return;
#pragma unroll 1
    for (int s = 0; s < kStreams && first + s < w.last; ++s) {
      if (s > 0)
        each_quad(cta, p.terms * w.rows, [&](int i) {
          w.sums4[i] = sum_of(w.sums4[i], w.sums4[s * kPanels * (kSumsOfWarp / 4) + i]);
        });
      if (first + s + 1 - w.first < slice_end) continue;
      end_slice(cta, w, slice, first + s + 1 == w.last);
      ++slice;
      slice_end += w.of_slice;
    }
  }
  /// Adds the terms of a slice that has ended, and its sum to the tree of slices, whose left
  /// branches wait in shared memory. Sums begin again, but after the last slice.
  DEVICE void end_slice(Cta& cta, const Work& w, int slice, bool last) const {
    if (p.terms > 1) add_terms(cta, w);
    if constexpr (kSliced) {
      int held = 0;  // in the room of that level
#pragma unroll 1
      for (; slice % 2 != 0; slice /= 2, held += kPanels * kSumsOfWarp / 4)
        each_quad(cta, w.rows, [&](int i) { w.sums4[i] = sum_of(w.held4[held + i], w.sums4[i]); });
      if (last) return;
      each_quad(cta, w.rows, [&](int i) { w.held4[held + i] = w.sums4[i]; });
      clear(cta, w);
    }
  }
  /// The rows of other terms are other threads'.
  DEVICE void add_terms(Cta& cta, const Work& w) const {
    cta.sync();
    each_quad(cta, w.rows, [&](int i) {
      const int row = i % (kSumsOfWarp / 4) / 8, q = i % 8 ^ turned(row), first = i - i % 8;
#pragma unroll 1
      for (int other = w.rows; other < p.terms * w.rows; other += w.rows)
        w.sums4[i] = sum_of(w.sums4[i], w.sums4[first + other * 8 + (q ^ turned(row + other))]);
    });
    cta.sync();
  }

  /// Outputs, by the last of the CTAs that share them.
  DEVICE void put(Cta& cta, const Work& w) const {
    cta.sync();
    if (shares > 1) {
      if (kSliced)
        each_row(cta, w,
                 [&](int row) { *slices_at(cta, share_of(cta), row) = w.sums[sum_at(cta, row)]; });
      if (!cta.last_of(p.came + group_of(cta), static_cast<std::uint32_t>(shares))) return;
    }
    const ProductItem item = item_of(p, cta.block_x());
    const std::int64_t output = panel_of(cta) * WeightLayout::kOutputs + cta.lane();
    if (output >= p.layout.n) return;
    each_row(cta, w, [&](int row) {
      float sum = 0;
      if (shares == 1)
        sum = w.sums[sum_at(cta, row)];
      else if (kSliced)
        sum = joined_slices(cta, row);
      else
        sum = joined_stretches(cta, w, row);
      put_output(p, item, row, output, sum);
    });
  }

  // What CTAs pass to the last that shares their outputs: of one slice the sums of stretches,
  // of several what a CTA's slices have come to.

  DEVICE bool passes_stretches() const { return !kSliced && shares > 1; }
  /// Of an item and panel: [stretches, rows of sums, 32].
  DEVICE std::int64_t stretch_at(Cta& cta, const Work& w, int stretch) const {
    return (group_of(cta) * w.of_slice + stretch) * (p.rows_max * p.terms) * WeightLayout::kOutputs;
  }
  /// [items and groups of panels, shares, panels, rows, 32].
  DEVICE float* slices_at(Cta& cta, int share, int row) const {
    const std::int64_t panel = (group_of(cta) * shares + share) * kPanels + cta.warp() % kPanels;
    return passed + (panel * p.rows_max + row) * WeightLayout::kOutputs + cta.lane();
  }
  DEVICE float joined_slices(Cta& cta, int row) const {
    float sums[limits::kSumSlices];
#pragma unroll
    for (int share = 0; share < limits::kSumSlices; ++share)
      if (share < shares) sums[share] = cta.load_joined(slices_at(cta, share, row));
    SliceTree tree;
#pragma unroll
    for (int share = 0; share < limits::kSumSlices; ++share)
      if (share < shares) tree.add(sums[share]);
    return tree.total();
  }
  DEVICE float joined_stretches(Cta& cta, const Work& w, int row) const {
    float sum = stretches_of(cta, w, row);
    for (int t = 1; t < p.terms; ++t) sum = sum + stretches_of(cta, w, t * w.rows + row);
    return sum;
  }
  /// Of a row of sums, some of which are asked for at once.
  DEVICE float stretches_of(Cta& cta, const Work& w, int row) const {
    constexpr int kAtOnce = 16;
    float sum = 0;
#pragma unroll 1
    for (int first = 0; first < w.of_slice; first += kAtOnce) {
      float sums[kAtOnce];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s)
        if (first + s < w.of_slice)
          sums[s] = cta.load_joined(passed + stretch_at(cta, w, first + s) +
                                    row * WeightLayout::kOutputs + cta.lane());
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s)
        if (first + s < w.of_slice) sum = sum + sums[s];
    }
    return sum;
  }
};

/// Shares are of slices, whose number is a power of two, or else of stretches.
template <class CodesOf, int kPanels, int kColumns>
void multiply_panels(Stream& stream, const Products& p) {
  using Kernel = MmaProduct<CodesOf, kPanels, kColumns>;
  const std::int64_t groups = ceil_div(p.layout.panels, kPanels);
  const std::int64_t stretches = ceil_div(p.layout.blocks, kMmaStretch);
  // Of a group: what a slice, or the stretches that its warps have at once, leaves behind.
  const std::int64_t pieces =
      Kernel::kSliced ? p.layout.slices : ceil_div(stretches, Kernel::kStreams);
  const std::int64_t floats = (Kernel::kSliced ? kPanels : Kernel::kStreams * p.terms) *
                              p.rows_max * WeightLayout::kOutputs;
  auto shares = static_cast<std::uint32_t>(p.sharers(pieces, floats * 4, kPanels));
  if (Kernel::kSliced) shares = std::bit_floor(shares);
  Stream::Scope scope(stream);
  float* passed = nullptr;
  if (shares > 1)
    passed =
        stream.scratch().take<float>(static_cast<std::size_t>(p.count * groups * pieces * floats));
  launch(stream, {p.count, groups * shares},
         Kernel{p, static_cast<std::int32_t>(shares), blocks_of_scale(p.layout), passed});
}

/// Up to eight rows of x are one column of an mma's eight.
template <class CodesOf, int kPanels>
void multiply_panels(Stream& stream, const Products& p) {
  if (p.rows_max * (p.terms > 1 ? 2 : 1) <= 8)
    return multiply_panels<CodesOf, kPanels, 1>(stream, p);
  multiply_panels<CodesOf, kPanels, 4>(stream, p);
}

/// Four panels a CTA, where those fill a third of a GPU or there are slices to share.
template <class CodesOf>
void mma_multiply_by(Stream& stream, const Products& p) {
  if (p.layout.slices > 1 || 3 * p.count * ceil_div(p.layout.panels, 4) >= p.full_ctas)
    return multiply_panels<CodesOf, 4>(stream, p);
  multiply_panels<CodesOf, 1>(stream, p);
}

}  // namespace

void mma_products(Stream& stream, const Products& p) {
  with_codes(p.layout, [&]<class CodesOf>() { mma_multiply_by<CodesOf>(stream, p); });
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
