/// What the twin makes of the instructions of tensor cores and of copies beside a thread, and what
/// it finds wrong in kernels that use them.
#include <doctest/doctest.h>

#include <cmath>
#include <deque>
#include <string>

#include "kernels/cuda/math.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/twin/twin.h"
#include "product_support.h"
#include "runtime/float_mode.h"

namespace troupe::kernels::cuda_twin {
namespace {

constexpr MmaOrder kOrders[] = {MmaOrder::kRoundedOnce, MmaOrder::kAscending, MmaOrder::kDescending,
                                MmaOrder::kAligned};

/// c += a b, each lane's numbers as PTX lays them out.
struct OneMma {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = true;

  const float* a;  ///< [16, 16]
  const float* b;  ///< [16, 8]
  float* c;        ///< [16, 8]

  void operator()(Cta& cta) const {
    const int g = cta.lane() / 4, t = cta.lane() % 4;
    const auto pair = [](const float* low, const float* high) { return round_pair(*low, *high); };
    const auto of_a = [&](int row, int k) { return pair(a + row * 16 + k, a + row * 16 + k + 1); };
    const auto of_b = [&](int k) { return pair(b + k * 8 + g, b + (k + 1) * 8 + g); };
    const std::uint32_t as[4] = {of_a(g, 2 * t), of_a(g + 8, 2 * t), of_a(g, 2 * t + 8),
                                 of_a(g + 8, 2 * t + 8)};
    float* at[4] = {c + g * 8 + 2 * t, c + g * 8 + 2 * t + 1, c + (g + 8) * 8 + 2 * t,
                    c + (g + 8) * 8 + 2 * t + 1};
    float sums[4] = {*at[0], *at[1], *at[2], *at[3]};
    ptx::mma(cta, as, of_b(2 * t), of_b(2 * t + 8), sums);
    for (int i = 0; i < 4; ++i) *at[i] = sums[i];
  }
};

TEST_CASE("an mma is a product of matrices, in any order of its sixteen products") {
  const FloatMode mode;
  Random random(1);
  bool differ = false;
  std::deque<Twin> twins;
  for (const MmaOrder order : kOrders) twins.emplace_back(nullptr, with_mma_order(1, order));
  for (int i = 0; i < 50; ++i) {
    const auto a = random.values(256), b = random.values(128), before = random.values(128);
    std::vector<float> of_first;
    for (std::size_t order = 0; order < twins.size(); ++order) {
      auto c = before;
      const OneMma kernel{a.data(), b.data(), c.data()};
      CHECK(twins[order].run(program_of(kernel), {}).empty());
      for (std::size_t row = 0; row < 16; ++row)
        for (std::size_t col = 0; col < 8; ++col) {
          auto exact = static_cast<double>(before[row * 8 + col]);
          double size = std::fabs(exact);
          for (std::size_t k = 0; k < 16; ++k) {
            const double term = static_cast<double>(twin_bf(a[row * 16 + k])) *
                                static_cast<double>(twin_bf(b[k * 8 + col]));
            exact += term;
            size += std::fabs(term);
          }
          const auto got = static_cast<double>(c[row * 8 + col]);
          CHECK(std::fabs(got - exact) <= size * 18 * 0x1p-24);
          if (kOrders[order] == MmaOrder::kRoundedOnce) CHECK(got == static_cast<float>(exact));
        }
      if (of_first.empty()) of_first = c;
      differ = differ || differences(of_first, c) > 0;
    }
  }
  CHECK(differ);
}

TEST_CASE("zeros add nothing to a sum, in any order") {
  const FloatMode mode;
  const auto c = Random(2).values(128);
  const std::vector<float> a = Random(3).values(256), b(128);
  for (const MmaOrder order : kOrders) {
    auto sums = c;
    const OneMma kernel{a.data(), b.data(), sums.data()};
    CHECK(Twin(nullptr, with_mma_order(1, order)).run(program_of(kernel), {}).empty());
    CHECK(differences(sums, c) == 0);
  }
}

/// Copies four matrices of eight by eight numbers to shared memory and back by ldmatrix.
struct Matrices {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 32 * 16;
  static constexpr bool kMeets = true;

  const std::uint16_t* from;  ///< [4, 8, 8]
  std::uint32_t* to;          ///< [lanes, 4]
  bool turned;

  void operator()(Cta& cta) const {
    const Shared<Quad> room = cta.shared<Quad>(0, 32);
    ptx::copy_later(cta, room, cta.lane(), from + cta.lane() * 8);
    ptx::commit_copies(cta);
    ptx::wait_copies<0>(cta);
    cta.sync();
    std::uint32_t got[4];
    if (turned)
      ptx::ldmatrix_trans(cta, room, cta.lane(), got);
    else
      ptx::ldmatrix(cta, room, cta.lane(), got);
    for (int i = 0; i < 4; ++i) to[cta.lane() * 4 + i] = got[i];
  }
};

TEST_CASE("ldmatrix gives lanes the pairs of four matrices, turned or not") {
  const FloatMode mode;
  alignas(16) std::uint16_t from[256];
  for (unsigned i = 0; i < 256; ++i) from[i] = static_cast<std::uint16_t>(i);
  for (const bool turned : {false, true}) {
    std::uint32_t to[128] = {};
    const Matrices kernel{from, to, turned};
    CHECK(Twin(nullptr, 1).run(program_of(kernel), {}).empty());
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned m = 0; m < 4; ++m) {
        const unsigned row = lane / 4, col = lane % 4 * 2;
        const unsigned low = turned ? m * 64 + col * 8 + row : m * 64 + row * 8 + col;
        CHECK(to[lane * 4 + m] == (low | (low + (turned ? 8 : 1)) << 16));
      }
  }
}

/// How a copy of the kernel is broken.
enum class PipeFault {
  kNot,
  kNoWait,      ///< reads what a copy has not brought
  kWaitsShort,  ///< for the group before
  kNoBarrier,   ///< reads what another thread's copy has brought
  kStaleTile,   ///< copies over a tile that others still read
  kWrongLane,   ///< ldmatrix gets rows of another matrix
  kOneFurther,  ///< ldmatrix gets the row behind the last
  kHalfARow,    ///< ldmatrix begins within sixteen bytes
  kMisaligned,  ///< copies from the middle of sixteen bytes
  kNotAll,      ///< a lane does not come to the mma
  kElsewhere,   ///< a lane comes to another one
  kNeverWaits,  ///< ends with copies on their way
};

constexpr int kTiles = 4;

/// The form of the attention: tiles of 32 rows of 16 numbers are copied while the one before is
/// multiplied, by two warps of 16 rows each. y = the sum over tiles of rows by their first eight.
struct Pipe {
  static constexpr int kThreads = 64;
  static constexpr std::int64_t kRow = 3;  ///< sixteen bytes, one of them between rows
  static constexpr std::size_t kSharedBytes = 2 * 32 * kRow * 16;
  static constexpr bool kMeets = true;

  const std::uint16_t* x;  ///< [kTiles, 32, 16]
  float* y;                ///< [32, 8]
  PipeFault broken;

  void operator()(Cta& cta) const {
    const Shared<Quad> room = cta.shared<Quad>(0, 2 * 32 * kRow);
    float sums[4] = {0, 0, 0, 0};
    copy(cta, room, 0);
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile + 1 < kTiles) copy(cta, room, tile + 1);
      if (broken == PipeFault::kWaitsShort)
        ptx::wait_copies<2>(cta);
      else if (tile + 1 < kTiles && broken != PipeFault::kNoWait)
        ptx::wait_copies<1>(cta);
      else if (broken != PipeFault::kNoWait)
        ptx::wait_copies<0>(cta);
      if (broken != PipeFault::kNoBarrier) cta.sync();
      multiply(cta, room, tile % 2 * 32, sums);
      if (broken != PipeFault::kStaleTile) cta.sync();
    }
    if (broken == PipeFault::kNeverWaits) copy(cta, room, 0);
    for (int i = 0; i < 4; ++i)
      y[(cta.warp() * 16 + cta.lane() / 4 + i / 2 * 8) * 8 + cta.lane() % 4 * 2 + i % 2] = sums[i];
  }

  void copy(Cta& cta, const Shared<Quad>& room, int tile) const {
    const int row = cta.thread() / 2, half = cta.thread() % 2;
    const std::uint16_t* from = x + (tile * 32 + row) * 16 + half * 8;
    if (broken == PipeFault::kMisaligned) from -= cta.thread() == 63 ? 4 : 0;
    ptx::copy_later(cta, room, (tile % 2 * 32 + row) * kRow + half, from);
    ptx::commit_copies(cta);
  }

  void multiply(Cta& cta, const Shared<Quad>& room, int first, float (&sums)[4]) const {
    const int lane = cta.lane();
    std::int64_t row = first + cta.warp() * 16 + lane % 16, half = lane / 16;
    if (broken == PipeFault::kWrongLane) row = first + cta.warp() * 16 + lane / 2, half = lane % 2;
    if (broken == PipeFault::kOneFurther) row += 1, half = 2;
    std::uint32_t a[4], b[4];
    const std::size_t off = broken == PipeFault::kHalfARow ? 8 : 0;
    ptx::ldmatrix(cta, cta.shared<Quad>(off, 2 * 32 * kRow - 1), row * kRow + half, a);
    // Of b only the first two matrices count: the tile's first eight rows.
    ptx::ldmatrix(cta, room, (first + lane % 8) * kRow + lane / 8 % 2, b);
    if (broken == PipeFault::kNotAll && cta.thread() == 5) return;
    if (broken == PipeFault::kElsewhere && cta.thread() == 5)
      return ptx::mma(cta, a, b[0], b[1], sums);
    ptx::mma(cta, a, b[0], b[1], sums);
  }
};

struct PipeOutcome {
  std::string finding;
  bool right = true;
};

PipeOutcome run_pipe(PipeFault broken, std::uint64_t seed) {
  const FloatMode mode;
  alignas(16) std::uint16_t x[kTiles * 32 * 16];
  float numbers[kTiles * 32 * 16], y[32 * 8] = {};
  Random random(7);
  for (int i = 0; i < kTiles * 32 * 16; ++i) {
    numbers[i] = static_cast<float>(static_cast<int>(random.bits() % 17) - 8);
    x[i] = to_bf16(numbers[i]).bits;
  }
  const Pipe kernel{x, y, broken};
  PipeOutcome out{Twin(nullptr, seed).run(program_of(kernel), {}), true};
  for (int row = 0; row < 32; ++row)
    for (int col = 0; col < 8; ++col) {
      float sum = 0;
      for (int tile = 0; tile < kTiles; ++tile)
        for (int k = 0; k < 16; ++k)
          sum += numbers[(tile * 32 + row) * 16 + k] * numbers[(tile * 32 + col) * 16 + k];
      out.right = out.right && y[row * 8 + col] == sum;
    }
  return out;
}

TEST_CASE("a kernel that copies ahead and multiplies is found right, in any order") {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const MmaOrder order : kOrders) {
      const PipeOutcome out = run_pipe(PipeFault::kNot, with_mma_order(seed, order));
      INFO(out.finding);
      CHECK(out.finding.empty());
      CHECK(out.right);
    }
}

TEST_CASE("what a broken kernel of tensor cores does is found, whatever the seed") {
  const std::pair<PipeFault, const char*> kPipeFaults[] = {
      {PipeFault::kNoWait, "is on its way that it has not waited for"},
      {PipeFault::kWaitsShort, "is on its way that it has not waited for"},
      {PipeFault::kNoBarrier, "of shared memory, "},
      {PipeFault::kStaleTile, "which others read since the last barrier"},
      {PipeFault::kWrongLane, ""},
      {PipeFault::kOneFurther, "of shared memory, "},
      {PipeFault::kHalfARow, "loads 16 bytes at once"},
      {PipeFault::kMisaligned, "loads 16 bytes at once"},
      {PipeFault::kNotAll, "threads wait for others that never come: thread"},
      {PipeFault::kElsewhere, "waits for its warp at cuda_ptx_test.cpp"},
      {PipeFault::kNeverWaits, "ends with copies on their way"},
  };
  for (const auto& [broken, what] : kPipeFaults)
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const PipeOutcome out = run_pipe(broken, seed);
      INFO("fault " << static_cast<int>(broken) << " seed " << seed << ": " << out.finding);
      if (*what == 0)
        CHECK(!out.right);
      else
        CHECK(out.finding.find(what) != std::string::npos);
    }
}

/// Takes what only warps that meet can.
struct NoWarp {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = false;

  void operator()(Cta& cta) const { ptx::any(cta, true); }
};

/// One of 24 threads, which are no warp.
struct SmallWarp {
  static constexpr int kThreads = 24;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = true;

  void operator()(Cta& cta) const { ptx::any(cta, true); }
};

/// Says whether any lane of its warp is the one asked for.
struct Any {
  static constexpr int kThreads = 64;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = true;

  bool* said;

  void operator()(Cta& cta) const { said[cta.thread()] = ptx::any(cta, cta.thread() == 37); }
};

TEST_CASE("a warp does together what all of it comes to") {
  const FloatMode mode;
  CHECK(!Twin(nullptr, 1).run(program_of(NoWarp{}), {}).empty());
  CHECK(!Twin(nullptr, 1).run(program_of(SmallWarp{}), {}).empty());
  bool said[64];
  CHECK(Twin(nullptr, 1).run(program_of(Any{said}), {}).empty());
  for (int i = 0; i < 64; ++i) CHECK(said[i] == (i >= 32));
}

}  // namespace
}  // namespace troupe::kernels::cuda_twin
