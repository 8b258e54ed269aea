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

  /// CTAs share a panel where `shared` says so.
  Integers(std::int64_t blocks, std::int32_t rows, bool shared) {
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
    if (shared) p.came = came;
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
  std::uint32_t came[kCameWords] = {};
  ProductItem item;
  Products p;
};

Outcome run_product(decltype(fast_products) copy, Numerics numerics, std::int64_t blocks,
                    std::int32_t rows, std::uint64_t seed, bool shared = false) {
  Told told(numerics, seed);
  Integers product(blocks, rows, shared);
  const auto right = product.by(plain_products, told.stream);
  const auto got = product.by(copy, told.stream);
  return {told.finding, error_of(got, right)};
}
/// More than one chunk of k.
Outcome run_fast(std::uint64_t seed) {
  return run_product(fast_products_copy, Numerics::kBf16, 40, 3, seed);
}
/// Three CTAs a panel.
Outcome run_shared(std::uint64_t seed) {
  return run_product(fast_products_copy, Numerics::kBf16, 72, 3, seed, true);
}
/// A panel a CTA, or two CTAs, with more stretches than warps.
Outcome run_mma(std::uint64_t seed) {
  return run_product(mma_products_copy, Numerics::kCudaMma, 80, 5, seed);
}
Outcome run_mma_shared(std::uint64_t seed) {
  return run_product(mma_products_copy, Numerics::kCudaMma, 72, 5, seed, true);
}
/// Slices of nine blocks, four panels a CTA, which there is one of or four.
Outcome run_mma_slices(std::uint64_t seed, bool shared) {
  Told told(Numerics::kCudaMma, seed);
  Integers product(72, 5, shared);
  product.p.layout.slices = 8;
  product.p.layout.blocks = 9;
  product.p.full_ctas = 4;
  const auto right = product.by(plain_products, told.stream);
  const auto got = product.by(mma_products_copy, told.stream);
  return {told.finding, error_of(got, right)};
}
Outcome run_mma_four(std::uint64_t seed) { return run_mma_slices(seed, false); }
Outcome run_mma_four_shared(std::uint64_t seed) { return run_mma_slices(seed, true); }

/// Two sequences' last rows, over some tiles.
template <std::int64_t kWidth, std::int64_t kOut>
Outcome run_attention(decltype(mma_attention) copy, std::uint64_t seed) {
  constexpr std::int64_t kContext = 150, kHeads = 8;
  Told told(Numerics::kCudaMma, seed);
  std::vector<std::int32_t> table, positions = {kContext - 1, kContext - 40};
  for (std::int32_t b = 0; b * 16 < kContext; ++b) table.push_back(b);
  const std::vector<const std::int32_t*> tables(positions.size(), table.data());
  alignas(16) static std::uint16_t cache[160 * kWidth];
  Random random(6);
  for (std::uint16_t& number : cache) number = to_bf16(random.value()).bits;
  Buffer q(2 * kHeads * kWidth * 4), y(2 * kHeads * kOut * 4);  // on boundaries of sixteen bytes
  std::ranges::copy(Random(7).values(2 * kHeads * kWidth), q.as<float>());
  AttentionInputs in;
  in.keys = in.values = {reinterpret_cast<std::byte*>(cache), DType::kBf16, 16, kWidth};
  in.scale = 0.3f;
  const auto by = [&](const auto& attend) {
    attend(told.stream, in, PagedRows{tables.data(), positions.data()},
           host_tensor(q.data(), DType::kF32, 2, kHeads * kWidth).split(kHeads),
           host_tensor(y.data(), DType::kF32, 2, kHeads * kOut).split(kHeads));
    return std::vector<float>(y.as<float>(), y.as<float>() + 2 * kHeads * kOut);
  };
  const auto right = by(plain_attention), got = by(copy);
  return {told.finding, error_of(got, right)};
}
Outcome run_part(std::uint64_t seed) { return run_attention<64, 64>(mma_attention_copy, seed); }
Outcome run_group(std::uint64_t seed) {
  return run_attention<576, 512>(wgmma_attention_copy, seed);
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
constexpr Copy kProduct = {"FastProduct", run_fast, 0},
               kShared = {"FastProduct, shared", run_shared, 0}, kMma = {"MmaProduct", run_mma, 0},
               kMmaShared = {"MmaProduct, shared", run_mma_shared, 0},
               kMmaFour = {"MmaProduct of four panels", run_mma_four, 0},
               kMmaFourShared = {"MmaProduct of four panels, shared", run_mma_four_shared, 0},
               kPart = {"MmaPart", run_part, 0x1p-8},
               kGroup = {"WgmmaPart", run_group, 0x1p-8}, kSort = {"SortChosen", run_chosen, 0};

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
  for (const Copy& copy :
       {kProduct, kShared, kMma, kMmaShared, kMmaFour, kMmaFourShared, kPart, kGroup, kSort})
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
      {Fault::kProductNoWait, kProduct, "is on its way that it has not waited for"},
      {Fault::kProductMetEarly, kShared, "of shared memory, which"},
      {Fault::kProductNotAwaited, kShared, "and is not their last"},
      {Fault::kProductWrongLane, kShared, ""},
      {Fault::kMmaNoWait, kMma, "is on its way that it has not waited for"},
      {Fault::kMmaTileEarly, kMma, "of shared memory, "},
      {Fault::kMmaTileEarly, kMmaFour, "of shared memory, "},
      {Fault::kMmaSumsEarly, kMma, "of shared memory, which"},
      {Fault::kMmaSumsEarly, kMmaFour, "of shared memory, which"},
      {Fault::kMmaWrongLane, kMma, ""},
      {Fault::kMmaWrongLane, kMmaFourShared, ""},
      {Fault::kMmaNotAll, kMma, "threads wait for others that never come"},
      {Fault::kMmaStaleSums, kMmaFour, ""},
      {Fault::kMmaNotAwaited, kMmaShared, "and is not their last"},
      {Fault::kMmaNotAwaited, kMmaFourShared, "and is not their last"},
      {Fault::kPartNoWait, kPart, "is on its way that it has not waited for"},
      {Fault::kPartTileEarly, kPart, "of shared memory, "},
      {Fault::kPartScoresEarly, kPart, "of shared memory, which"},
      {Fault::kPartTileOverwritten, kPart, "of shared memory, "},
      {Fault::kPartEndsEarly, kPart, "of shared memory, which"},
      {Fault::kPartWrongLane, kPart, ""},
      {Fault::kGroupNoWait, kGroup, "is on its way that it has not waited for"},
      {Fault::kGroupNotFenced, kGroup, "has written and not fenced"},
      {Fault::kGroupSumsEarly, kGroup, "CTA ("},  // weights are overwritten, or it ends
      {Fault::kGroupWeightsEarly, kGroup, "of shared memory, which"},
      {Fault::kGroupOverwritten, kGroup, "of shared memory, "},
      {Fault::kGroupWrongLane, kGroup, ""},
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
    std::printf("  fma_f32 in a step of FastProduct<Bf16Codes, %d, 8>: %ld\n", rows,
                static_cast<long>(fma_calls / steps));
  }
}

}  // namespace
}  // namespace troupe::kernels::cuda_twin
