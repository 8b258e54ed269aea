/// What warps of the CUDA back-end's kernels move, counted by the twin: a table, and budgets.
#include <doctest/doctest.h>

#include <cstdio>

#include "kernels/attention.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/twin/backend.h"
#include "kernels/cuda/twin/traffic.h"
#include "kernels/cuda/twin/twin.h"
#include "kernels/linear.h"
#include "product_support.h"
#include "runtime/float_mode.h"

namespace troupe::kernels::cuda_twin {
namespace {

using Kind = Traffic::Kind;

/// A line of the table; what is moved over what could have moved it.
double print_total(const std::string& what, const Traffic::Total& total, const char* unit) {
  const double ratio = static_cast<double>(total.units) / static_cast<double>(total.least);
  std::printf("  %-46s %7ld instructions  %8ld %-8s %5.2f of the least\n", what.c_str(),
              static_cast<long>(total.instructions), static_cast<long>(total.units), unit, ratio);
  return ratio;
}

struct Ratios {
  double load = 0, shared_read = 0, shared_write = 0;
  std::int64_t copied = 0;       ///< sectors
  std::int64_t read_passes = 0;  ///< of shared memory
};

/// Of all loads together, and of shared memory.
Ratios print_table(const std::string& kernel, const Traffic& traffic) {
  Ratios worst;
  Traffic::Total loads;
  for (const auto& [place, total] : traffic.totals()) {
    const auto& [kind, line] = place;
    if (kind == Kind::kLoad) {
      loads.units += total.units;
      loads.least += total.least;
      if (line == 0) worst.copied += total.units;
      const std::string what = line > 0 ? "loads of line " + std::to_string(line) : "copies";
      print_total(kernel + ": " + what, total, "sectors");
    }
    if (kind == Kind::kSharedRead) {
      worst.shared_read = print_total(kernel + ": shared reads", total, "passes");
      worst.read_passes = total.units;
    }
    if (kind == Kind::kSharedWrite)
      worst.shared_write = print_total(kernel + ": shared writes", total, "passes");
  }
  worst.load = static_cast<double>(loads.units) / static_cast<double>(loads.least);
  return worst;
}

constexpr std::int64_t kProductOutputs = 128, kProductK = 2048;

Ratios of_product(Numerics numerics, Codes codes, std::int64_t rows, int slices = 1) {
  const FloatMode mode;
  constexpr std::int64_t kN = kProductOutputs, kK = kProductK;
  std::vector<std::byte> bytes(static_cast<std::size_t>(kN * kK * code_bits(codes) / 8));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 % 61);
  const std::vector<float> scales(64, 0.5f);
  StoredMatrix stored{codes, kN, kK, {}};
  if (codes == Codes::kFp8)
    stored.scales = {reinterpret_cast<const std::byte*>(scales.data()), DType::kF32, 128, 128};
  auto packer = WeightPacker::begin(numerics, stored, {slices}).value();
  packer.add(bytes.data(), kN);
  const Weight w = packer.take();
  std::vector<float> x = Random(1).values(rows * kK), y(static_cast<std::size_t>(rows * kN));
  Stream stream({.numerics = numerics, .backend = cuda_twin_backend()});
  const Activation in = prepare(stream, host_tensor(x.data(), DType::kF32, rows, kK), w);
  Traffic traffic;
  static_cast<Twin*>(stream.device())->count(&traffic);
  linear(stream, w, in, host_tensor(y.data(), DType::kF32, rows, kN));
  static_cast<Twin*>(stream.device())->count(nullptr);
  return print_table(std::string(by_tensor_cores(numerics) ? "mma product, " : "product, ") +
                         (codes == Codes::kFp8 ? "FP8, " : "bf16, ") + std::to_string(rows) +
                         (rows == 1 ? " row" : " rows"),
                     traffic);
}

TEST_CASE("a decode product reads its weights a whole sector at a time") {
  for (const Codes codes : {Codes::kBf16, Codes::kFp8})
    for (const std::int64_t rows : {1, 8}) {
      const Ratios ratios = of_product(Numerics::kBf16, codes, rows);
      CHECK(ratios.load == doctest::Approx(1.0));
      CHECK(ratios.shared_read <= 1.01);
      // As written, four blocks of k have their sums in the same banks. nvcc stores four sums at
      // once (STS.128), which has no conflict.
      CHECK(ratios.shared_write <= 3.01);
    }
}

TEST_CASE("a product by tensor cores does the same with up to 32 rows") {
  for (const Codes codes : {Codes::kBf16, Codes::kFp8})
    for (const std::int64_t rows : {1, 8, 32})
      for (const int slices : {1, 8}) {
        const Ratios ratios = of_product(Numerics::kCudaMma, codes, rows, slices);
        CHECK(ratios.load == doctest::Approx(1.0));
        CHECK(ratios.shared_read <= 1.01);
        CHECK(ratios.shared_write <= 1.01);
        // x is read once for a panel, or for four.
        const std::int64_t of_x = rows * kProductK * 2 / 32;
        CHECK(ratios.copied == of_x * kProductOutputs / (slices > 1 ? 128 : 32));
      }
}

/// MLA's decode of one row at V3's widths; eight heads, or all 128.
Ratios of_attention(Numerics numerics, std::int64_t heads, const char* name,
                    std::uint64_t seed = 0) {
  const FloatMode mode;
  constexpr std::int64_t kContext = 512, kWidth = 576;
  std::vector<std::int32_t> table, positions = {kContext - 1};
  for (std::int32_t b = 0; b < kContext / 16; ++b) table.push_back(b);
  const std::vector<const std::int32_t*> tables = {table.data()};
  alignas(256) static std::uint16_t cache[kContext * kWidth];
  std::fill(std::begin(cache), std::end(cache), std::uint16_t{0x3c00});
  Buffer q(static_cast<std::size_t>(heads * kWidth) * 4);  // on a boundary of sixteen bytes
  Buffer y(static_cast<std::size_t>(heads * 512) * 4);
  std::ranges::copy(Random(2).values(heads * kWidth), q.as<float>());
  Stream stream({.numerics = numerics, .backend = cuda_twin_backend(), .order_seed = seed});
  AttentionInputs in;
  in.keys = in.values = {reinterpret_cast<std::byte*>(cache), DType::kBf16, 16, kWidth};
  Traffic traffic;
  static_cast<Twin*>(stream.device())->count(&traffic);
  attention(stream, in, {tables.data(), positions.data()},
            host_tensor(q.data(), DType::kF32, 1, heads * kWidth).split(heads),
            host_tensor(y.data(), DType::kF32, 1, heads * 512).split(heads));
  static_cast<Twin*>(stream.device())->count(nullptr);
  return print_table(name, traffic);
}

TEST_CASE("attention: each lane reads a position of its own") {
  // Half of a sector at a time: the nearest cache must hold the other half until it is asked for.
  CHECK(of_attention(Numerics::kBf16, 8, "MLA decode").load <= 2.01);
}

TEST_CASE("attention by tensor cores copies whole sectors, and reads rows from different banks") {
  const Ratios ratios = of_attention(Numerics::kCudaMma, 64, "MLA decode by mma", kOtherGpu);
  CHECK(ratios.load == doctest::Approx(1.0));
  CHECK(ratios.shared_read <= 1.05);
  CHECK(ratios.shared_write <= 1.3);  // pairs of weights, a word a lane; a softmax, one of eight
  // Of a tile: for scores, for values, and what weights are made of.
  CHECK(ratios.read_passes <= 16 * (2304 + 512 + 210));
}

TEST_CASE("attention by wgmma copies whole sectors, and writes rows to different banks") {
  const Ratios ratios = of_attention(Numerics::kCudaMma, 64, "MLA decode by wgmma");
  // Keys are; of queries half a sector at a time, the other half of which the nearest cache has.
  CHECK(ratios.load <= 1.11);
  CHECK(ratios.copied == 512 * 576 * 2 / 32);
  CHECK(ratios.shared_write <= 1.3);
}

/// Sixteen bytes a lane, `apart` quads from each other, through shared memory with words that are
/// `words_apart` from each other.
struct Move {
  static constexpr int kThreads = 64;
  static constexpr std::size_t kSharedBytes = kThreads * 32 * 4;
  static constexpr bool kMeets = true;

  const Quad* x;
  float* y;
  int apart, words_apart;

  void operator()(Cta& cta) const {
    const Shared<float> shared = cta.shared<float>(0, kThreads * 32);
    const Quad quad = cta.load_quad(x + cta.thread() * apart);
    shared[cta.thread() * words_apart] = std::bit_cast<float>(quad.words[0]);
    cta.sync();
    y[cta.thread()] = shared[cta.thread() * words_apart];
  }
};

Ratios of_move(int apart, int words_apart) {
  const FloatMode mode;
  alignas(64) static Quad x[Move::kThreads * 2] = {};
  float y[Move::kThreads];
  Traffic traffic;
  Twin twin(nullptr, 3);
  twin.count(&traffic);
  const Move kernel{x, y, apart, words_apart};
  CHECK(twin.run(program_of(kernel), {}).empty());
  return print_table("moved " + std::to_string(apart) + ", " + std::to_string(words_apart),
                     traffic);
}

TEST_CASE("halves of sectors, and words of one bank, are counted") {
  const Ratios good = of_move(1, 1), odd = of_move(1, 3), half = of_move(2, 1);
  CHECK(good.load == 1);
  CHECK(good.shared_read == 1);
  CHECK(odd.shared_write == 1);
  CHECK(half.load == 2);
  CHECK(of_move(1, 2).shared_read == 2);
  CHECK(of_move(1, 32).shared_write == 32);
}

}  // namespace
}  // namespace troupe::kernels::cuda_twin
