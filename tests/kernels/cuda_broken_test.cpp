/// The back-end's own kernels, broken as a slip of the pen would: the twin finds each fault, or the
/// plain kernels' numbers do. The same copies are right where nothing is broken.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/twin/backend.h"
#include "product_support.h"
#include "runtime/float_mode.h"
#include "tests/kernels/cuda_broken.h"

namespace troupe::kernels::cuda_twin {

Fault fault = Fault::kNone;
std::int64_t fma_calls = 0;

namespace {

/// What a broken copy did: what the twin said, and how far it is from the plain kernel.
struct Outcome {
  std::string finding;
  double error = 0;  ///< of the largest number
};

double error_of(const std::vector<float>& got, const std::vector<float>& right) {
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    const auto x = static_cast<double>(right[i]), y = static_cast<double>(got[i]);
    largest = std::max(largest, std::fabs(x));
    worst = std::isfinite(y) ? std::max(worst, std::fabs(x - y)) : HUGE_VAL;
  }
  return worst / largest;
}

/// A stream of the twin that says what it finds.
struct Told {
  Told(Numerics numerics, std::uint64_t seed)
      : stream({.numerics = numerics, .backend = cuda_twin_backend(), .order_seed = seed}) {
    static_cast<Twin*>(stream.device())->tell(&finding);
  }
  const FloatMode mode;
  Stream stream;
  std::string finding;
};

/// Rows of small integers by panels of them, by hand: their sums are exact in any order.
struct Integers {
  static constexpr std::int64_t kPanels = 2, kOutputs = kPanels * 32;

  Integers(std::int64_t blocks, std::int32_t rows) {
    const std::int64_t k = blocks * 32;
    Random random(5);
    const auto integers = [&](std::int64_t count) {
      std::vector<std::uint16_t> all;
      for (std::int64_t i = 0; i < count; ++i)
        all.push_back(to_bf16(static_cast<float>(random.bits() % 17) - 8).bits);
      return all;
    };
    panels = integers(kOutputs * k);
    x = integers(rows * k);
    p.layout.slices = 1;
    p.layout.blocks = blocks;
    p.layout.slice_k = p.layout.k = k;
    p.layout.panels = kPanels;
    p.layout.n = kOutputs;
    p.layout.block_bytes = 32 * 32 * 2;
    p.layout.part_bytes = p.layout.scales_at = p.layout.zeros_at = blocks * p.layout.block_bytes;
    p.layout.panel_bytes = p.layout.part_bytes;
    p.count = 1;
    p.rows_max = item.rows = rows;
    p.x_bytes = k * 2;
    p.y_bytes = kOutputs * 4;
  }

  std::vector<float> by(decltype(fast_products) multiply, Stream& stream) {
    std::vector<float> y(static_cast<std::size_t>(item.rows * kOutputs));
    item.panels = reinterpret_cast<const std::byte*>(panels.data());
    item.x = reinterpret_cast<const std::byte*>(x.data());
    item.y = reinterpret_cast<std::byte*>(y.data());
    p.items = &item;
    multiply(stream, p);
    return y;
  }

  std::vector<std::uint16_t> panels, x;
  ProductItem item;
  Products p;
};

Outcome run_product(decltype(fast_products) copy, Numerics numerics, std::int64_t blocks,
                    std::int32_t rows, std::uint64_t seed) {
  Told told(numerics, seed);
  Integers product(blocks, rows);
  const auto right = product.by(plain_products, told.stream);
  const auto got = product.by(copy, told.stream);
  return {told.finding, error_of(got, right)};
}
/// More than one chunk of k.
Outcome run_fast(std::uint64_t seed) {
  return run_product(fast_products_copy, Numerics::kBf16, 40, 3, seed);
}
/// More stretches than warps.
Outcome run_mma(std::uint64_t seed) {
  return run_product(mma_products_copy, Numerics::kCudaMma, 72, 5, seed);
}

/// Two sequences' last rows, over some tiles.
Outcome run_attention(std::uint64_t seed) {
  constexpr std::int64_t kContext = 150, kHeads = 8, kWidth = 64;
  Told told(Numerics::kCudaMma, seed);
  std::vector<std::int32_t> table, positions = {kContext - 1, kContext - 40};
  for (std::int32_t b = 0; b * 16 < kContext; ++b) table.push_back(b);
  const std::vector<const std::int32_t*> tables(positions.size(), table.data());
  alignas(16) static std::uint16_t cache[160 * kWidth];
  Random random(6);
  for (std::uint16_t& number : cache) number = to_bf16(random.value()).bits;
  std::vector<float> q = Random(7).values(2 * kHeads * kWidth);
  AttentionInputs in;
  in.keys = in.values = {reinterpret_cast<std::byte*>(cache), DType::kBf16, 16, kWidth};
  in.scale = 0.3f;
  const auto by = [&](const auto& attend) {
    std::vector<float> y(2 * kHeads * kWidth);
    attend(told.stream, in, PagedRows{tables.data(), positions.data()},
           host_tensor(q.data(), DType::kF32, 2, kHeads * kWidth).split(kHeads),
           host_tensor(y.data(), DType::kF32, 2, kHeads * kWidth).split(kHeads));
    return y;
  };
  const auto right = by(plain_attention), got = by(mma_attention_copy);
  return {told.finding, error_of(got, right)};
}

/// Rows that chose three of eight experts each, in two passes.
Outcome run_chosen(std::uint64_t seed) {
  constexpr std::int32_t kRows = 40, kExperts = 8, kPerRow = 3, kWidth = 32;
  Told told(Numerics::kBf16, seed);
  std::vector<GatedMlp> mlps(kExperts);
  std::vector<const GatedMlp*> experts;
  for (GatedMlp& mlp : mlps) {
    const auto at = static_cast<unsigned>(experts.size()) * 3;
    mlp.gate = pack(Numerics::kBf16, filled({Codes::kBf16, 32, kWidth}, at));
    mlp.up = pack(Numerics::kBf16, filled({Codes::kBf16, 32, kWidth}, at + 1));
    mlp.down = pack(Numerics::kBf16, filled({Codes::kBf16, kWidth, 32}, at + 2));
    experts.push_back(&mlp);
  }
  const ExpertTable table = expert_table(told.stream, experts);
  std::vector<std::uint16_t> x;
  for (const float value : Random(9).values(kRows * kWidth)) x.push_back(to_bf16(value).bits);
  std::vector<std::int32_t> ids;
  for (std::int32_t r = 0; r < kRows; ++r)
    for (std::int32_t i = 0; i < kPerRow; ++i) ids.push_back((r * 5 + i * 3) % kExperts);
  const auto by = [&](decltype(kernels::chosen_mlp) compute) {
    std::vector<std::uint16_t> y(kRows * kPerRow * kWidth);
    std::int32_t experts_read = 0;
    const ChosenRows rows = {reinterpret_cast<const std::byte*>(x.data()), ids.data(),
                             reinterpret_cast<std::byte*>(y.data()), &experts_read, kRows};
    compute(told.stream, table, {}, kPerRow, {&rows, 1}, 64);
    std::vector<float> values;
    for (const std::uint16_t bits : y) values.push_back(to_float(Bf16{bits}));
    return values;
  };
  const auto right = by(plain_chosen_mlp), got = by(chosen_mlp_copy);
  return {told.finding, error_of(got, right)};
}

/// A kernel's copy; how far it may be from the plain kernel, whose numerics may be others.
struct Copy {
  const char* name;
  Outcome (*run)(std::uint64_t seed);
  double bound;
};
constexpr Copy kProduct = {"FastProduct", run_fast, 0}, kMma = {"MmaProduct", run_mma, 0},
               kPart = {"MmaPart", run_attention, 0x1p-8}, kSort = {"SortChosen", run_chosen, 0};

constexpr std::uint64_t kSeeds = 10;

/// Whether what the twin finds may be read: fibers are then unwound, which GCC's address sanitizer
/// takes for writes beyond the stack.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kUnwinds = false;
#else
constexpr bool kUnwinds = true;
#endif

TEST_CASE("a copy of which nothing is broken is right, in any order") {
  fault = Fault::kNone;
  for (const Copy& copy : {kProduct, kMma, kPart, kSort})
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Outcome out = copy.run(seed);
      INFO(copy.name << " seed " << seed << ": " << out.finding);
      CHECK(out.finding.empty());
      CHECK(out.error <= copy.bound);
    }
}

TEST_CASE("what a broken copy does is found, in any order") {
  struct Broken {
    Fault fault;
    Copy copy;
    const char* finding;  ///< empty: only its numbers show it
  };
  const Broken kBroken[] = {
      {Fault::kProductReadsEarly, kProduct, "of shared memory, which"},
      {Fault::kProductSumsEarly, kProduct, "of shared memory, which"},
      {Fault::kProductStaleTile, kProduct, ""},
      {Fault::kProductWrongLane, kProduct, ""},
      {Fault::kMmaSumsEarly, kMma, "of shared memory, which"},
      {Fault::kMmaSumsOverwritten, kMma, "since the last barrier"},
      {Fault::kMmaWrongLane, kMma, ""},
      {Fault::kMmaNotAll, kMma, "threads wait for others that never come"},
      {Fault::kPartNoWait, kPart, "is on its way that it has not waited for"},
      {Fault::kPartTileEarly, kPart, "of shared memory, "},
      {Fault::kPartScoresEarly, kPart, "of shared memory, which"},
      {Fault::kPartTileOverwritten, kPart, "of shared memory, "},
      {Fault::kPartWrongLane, kPart, ""},
      {Fault::kSortSumsEarly, kSort, "of shared memory, which"},
      {Fault::kSortSumsOverwritten, kSort, "since the last barrier"},
      {Fault::kSortWrongLane, kSort, "which the mask does not name"},
  };
  for (const Broken& broken : kBroken)
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      if (*broken.finding != 0 && !kUnwinds) continue;
      fault = broken.fault;
      const Outcome out = broken.copy.run(seed);
      INFO("fault " << static_cast<int>(fault) << " of " << broken.copy.name << ", seed " << seed
                    << ": '" << out.finding << "', off by " << out.error);
      if (*broken.finding != 0) {
        CHECK(out.finding.find(broken.finding) != std::string::npos);
      } else {
        CHECK(out.finding.empty());
        CHECK(out.error > 0x1p-4);
      }
    }
  fault = Fault::kNone;
}

/// A thread has four outputs of a block of 32 k, in four steps; where a panel's blocks are no
/// multiple of what a CTA takes at once, threads without one do nothing.
TEST_CASE("a product calls fma once for each weight and row that it has room for") {
  fault = Fault::kNone;
  for (const std::int32_t rows : {1, 4, 8}) {
    constexpr std::int64_t kBlocks = 40;
    fma_calls = 0;
    CHECK(run_product(fast_products_copy, Numerics::kBf16, kBlocks, rows, 1).error == 0);
    const std::int64_t steps = Integers::kPanels * kBlocks * 8 * 4;  // of eight lanes each
    CHECK(fma_calls == Integers::kOutputs * kBlocks * 32 * rows);
    CHECK(fma_calls % steps == 0);
    std::printf("  fma_f32 in a step of FastProduct<Bf16Codes, %d>: %ld\n", rows,
                static_cast<long>(fma_calls / steps));
  }
}

}  // namespace
}  // namespace troupe::kernels::cuda_twin
