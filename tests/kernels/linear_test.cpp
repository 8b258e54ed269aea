#include "kernels/linear.h"

#include "support.h"

namespace troupe::kernels {
namespace {

struct Shape {
  std::int64_t n, k;
  int slices;
};

const std::vector<Shape> kShapes = {{1, 1, 1},    {3, 5, 1},     {31, 33, 1},   {32, 32, 1},
                                    {33, 31, 1},  {64, 256, 1},  {65, 127, 1},  {100, 96, 8},
                                    {96, 512, 8}, {40, 120, 4},  {257, 70, 2},  {7, 1000, 8},
                                    {160, 24, 8}, {64, 2047, 1}, {128, 264, 8}};

std::string name(Numerics f, const Shape& s) {
  return std::string(to_string(f)) + " n=" + std::to_string(s.n) + " k=" + std::to_string(s.k) +
         " slices=" + std::to_string(s.slices);
}

/// What x W^T is in float64, and the sum of magnitudes that bounds its rounding error.
struct Exact {
  double value = 0, magnitude = 0;
};

template <class Weight>
Exact exact(const float* x, std::int64_t k, bool round_x, const Weight& weight) {
  Exact e;
  for (std::int64_t i = 0; i < k; ++i) {
    const double term = static_cast<double>(round_x ? rounded(x[i]) : x[i]) * weight(i);
    e.value += term;
    e.magnitude += std::abs(term);
  }
  return e;
}

std::vector<float> run(const Context& ctx, const PackedMatrix& w, const std::vector<float>& x,
                       std::size_t rows) {
  const auto n = static_cast<std::size_t>(w.n()), k = static_cast<std::size_t>(w.k());
  // A gap after each row shows writes beyond the columns.
  std::vector<float> y(rows * (n + 3), 7.0f);
  linear(ctx, w, {x.data(), rows, k, k}, {y.data(), rows, n, n + 3});
  std::vector<float> dense;
  for (std::size_t r = 0; r < rows; ++r) {
    dense.insert(dense.end(), y.begin() + static_cast<long>(r * (n + 3)),
                 y.begin() + static_cast<long>(r * (n + 3) + n));
    for (std::size_t i = n; i < n + 3; ++i) CHECK(y[r * (n + 3) + i] == 7.0f);
  }
  return dense;
}

TEST_CASE("linear agrees with float64 for every family, type and odd shape") {
  constexpr std::size_t kRows = 37;
  for (Numerics family : supported_numerics()) {
    TestContext ctx(family, 2);
    for (const Shape& s : kShapes) {
      for (const WeightType type : {WeightType::kBf16, WeightType::kF32}) {
        for (const bool full : {false, true}) {
          INFO(name(family, s) << " f32=" << (type == WeightType::kF32) << " full=" << full);
          const auto weights = random_values(static_cast<std::size_t>(s.n * s.k), 1);
          const auto halves = to_bf16(weights);
          const void* data = type == WeightType::kF32 ? static_cast<const void*>(weights.data())
                                                      : halves.data();
          const auto w = pack(family, dense_source(data, type, s.n, s.k), {s.slices, full});
          const auto x = random_values(kRows * static_cast<std::size_t>(s.k), 2);
          const auto y = run(ctx, w, x, kRows);
          const bool round_x = rounds_activations(family) && !full;
          double worst = 0;
          for (std::size_t r = 0; r < kRows; ++r) {
            for (std::int64_t i = 0; i < s.n; ++i) {
              const Exact e = exact(
                  x.data() + r * static_cast<std::size_t>(s.k), s.k, round_x, [&](std::int64_t j) {
                    const float v = weights[static_cast<std::size_t>(i * s.k + j)];
                    return type == WeightType::kF32 && !round_x ? v : rounded(v);
                  });
              const double got = y[r * static_cast<std::size_t>(s.n) + static_cast<std::size_t>(i)];
              worst = std::max(worst, std::abs(got - e.value) / (e.magnitude + 1e-30));
            }
          }
          CHECK(worst < 4e-6);
        }
      }
    }
  }
}

TEST_CASE("a row of linear has the same bits in any batch and on any number of threads") {
  const std::vector<Shape> shapes = {{64, 256, 1}, {100, 96, 8}, {257, 300, 2}, {512, 768, 8}};
  for (Numerics family : supported_numerics()) {
    for (const Shape& s : shapes) {
      for (const bool full : {false, true}) {
        INFO(name(family, s) << " full=" << full);
        const auto n = static_cast<std::size_t>(s.n), k = static_cast<std::size_t>(s.k);
        const auto weights = to_bf16(random_values(n * k, 3));
        const auto w = pack(family, dense_source(weights.data(), WeightType::kBf16, s.n, s.k),
                            {s.slices, full});
        const auto x = random_values(512 * k, 4);
        std::vector<float> alone;
        TestContext one(family);
        for (std::size_t r = 0; r < 512; ++r) {
          const std::vector<float> row(x.begin() + static_cast<long>(r * k),
                                       x.begin() + static_cast<long>((r + 1) * k));
          const auto y = run(one, w, row, 1);
          alone.insert(alone.end(), y.begin(), y.end());
        }
        for (int threads = 1; threads <= 4; ++threads) {
          TestContext ctx(family, threads);
          for (std::size_t rows : kRowCounts) {
            const auto y = run(ctx, w, x, rows);
            CHECK(same_bits(y.data(), alone.data(), y.size()));
          }
        }
      }
    }
  }
}

TEST_CASE("slices that ranks sum apart and join as a tree give the bits of the whole") {
  constexpr std::int64_t n = 70, k = 8 * 40;
  const auto weights = to_bf16(random_values(n * k, 5));
  const auto x = random_values(5 * k, 6);
  for (Numerics family : supported_numerics()) {
    INFO(to_string(family));
    TestContext ctx(family);
    const auto whole =
        run(ctx, pack(family, dense_source(weights.data(), WeightType::kBf16, n, k), {8}), x, 5);
    for (int ranks : {2, 4, 8}) {
      std::vector<std::vector<float>> parts;
      const std::int64_t part_k = k / ranks;
      for (int rank = 0; rank < ranks; ++rank) {
        const WeightSource source{weights.data() + rank * part_k, WeightType::kBf16, n, part_k, k,
                                  1};
        const auto w = pack(family, source, {8 / ranks});
        std::vector<float> y(5 * n);
        linear(ctx, w,
               {x.data() + rank * part_k, 5, static_cast<std::size_t>(part_k), std::size_t{k}},
               make_rows(y.data(), 5, n));
        parts.push_back(y);
      }
      for (; parts.size() > 1; parts.resize(parts.size() / 2))
        for (std::size_t i = 0; i < parts.size() / 2; ++i)
          for (std::size_t j = 0; j < whole.size(); ++j)
            parts[i][j] = parts[2 * i][j] + parts[2 * i + 1][j];
      CHECK(same_bits(parts[0].data(), whole.data(), whole.size()));
    }
  }
}

TEST_CASE("a transposed source packs to the same weight as its copy") {
  constexpr std::int64_t n = 45, k = 77;
  const auto weights = to_bf16(random_values(n * k, 7));
  std::vector<Bf16> transposed(weights.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < k; ++j)
      transposed[static_cast<std::size_t>(j * n + i)] =
          weights[static_cast<std::size_t>(i * k + j)];
  const auto x = random_values(k, 8);
  for (Numerics family : supported_numerics()) {
    TestContext ctx(family);
    const auto a = run(ctx, pack(family, {weights.data(), WeightType::kBf16, n, k, k, 1}), x, 1);
    const auto b = run(ctx, pack(family, {transposed.data(), WeightType::kBf16, n, k, 1, n}), x, 1);
    CHECK(same_bits(a.data(), b.data(), a.size()));
  }
}

TEST_CASE("a source may lie anywhere in a file") {
  constexpr std::int64_t n = 64, k = 96;
  const auto values = random_values(n * k, 7);
  const auto halves = to_bf16(values);
  const auto x = random_values(k, 8);
  std::vector<std::byte> file(n * k * 4 + 1);
  for (Numerics family : supported_numerics()) {
    TestContext ctx(family);
    for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
      const void* data = type == WeightType::kF32 ? static_cast<const void*>(values.data())
                                                  : halves.data();
      std::memcpy(file.data() + 1, data, n * k * weight_size(type));
      for (const bool full : {false, true}) {
        const auto a = run(ctx, pack(family, dense_source(data, type, n, k), {1, full}), x, 1);
        const auto b =
            run(ctx, pack(family, dense_source(file.data() + 1, type, n, k), {1, full}), x, 1);
        CHECK(same_bits(a.data(), b.data(), a.size()));
      }
    }
  }
}

TEST_CASE("linear_heads equals linear head by head") {
  constexpr std::size_t kHeads = 5, kK = 24, kN = 40, kRows = 9;
  for (Numerics family : supported_numerics()) {
    std::vector<PackedMatrix> w;
    for (unsigned h = 0; h < kHeads; ++h) {
      const auto values = to_bf16(random_values(kN * kK, 10 + h));
      w.push_back(pack(family, dense_source(values.data(), WeightType::kBf16, kN, kK)));
    }
    // The heads' inputs are the tails of wider heads, as the no-position part of q is.
    const auto x = random_values(kRows * kHeads * (kK + 8), 9);
    TestContext ctx(family, 3);
    std::vector<float> y(kRows * kHeads * kN), one(kN);
    const ConstHeads in = {x.data() + 8, kRows, kHeads, kK, kHeads * (kK + 8), kK + 8};
    const Heads out = make_heads(y.data(), kRows, kHeads, kN);
    linear_heads(ctx, w, in, out);
    for (std::size_t h = 0; h < kHeads; ++h)
      for (std::size_t r = 0; r < kRows; ++r) {
        linear(ctx, w[h], const_rows(in.at(r, h), 1, kK), make_rows(one.data(), 1, kN));
        CHECK(same_bits(one.data(), out.at(r, h), kN));
      }
  }
}

TEST_CASE("a NaN or an infinity stays in its row") {
  constexpr std::size_t kK = 96, kN = 64, kRows = 4;
  const auto weights = to_bf16(random_values(kN * kK, 11));
  auto x = random_values(kRows * kK, 12);
  for (Numerics family : supported_numerics()) {
    TestContext ctx(family);
    const auto w = pack(family, dense_source(weights.data(), WeightType::kBf16, kN, kK));
    const auto clean = run(ctx, w, x, kRows);
    auto dirty = x;
    dirty[kK + 3] = std::nanf("");
    dirty[2 * kK + 50] = INFINITY;
    const auto y = run(ctx, w, dirty, kRows);
    CHECK(same_bits(y.data(), clean.data(), kN));
    CHECK(same_bits(y.data() + 3 * kN, clean.data() + 3 * kN, kN));
    CHECK(std::isnan(y[kN]));
    CHECK(!std::isfinite(y[2 * kN]));
  }
}

TEST_CASE("impossible shapes are refused") {
  const float w[4] = {};
  CHECK(!pack_matrix(Numerics::kReference, dense_source(w, WeightType::kF32, 0, 4)).ok());
  CHECK(!pack_matrix(Numerics::kReference, dense_source(w, WeightType::kF32, 1, -1)).ok());
  CHECK(!pack_matrix(Numerics::kReference, dense_source(w, WeightType::kF32, 1, 4), {3}).ok());
  CHECK(!pack_matrix(Numerics::kReference, dense_source(w, WeightType::kF32, 1, 4), {8}).ok());
  CHECK(sum_slices(2048, 128) == 8);
  CHECK(sum_slices(96, 32) == 1);
  CHECK(sum_slices(128, 32) == 4);
}

}  // namespace
}  // namespace troupe::kernels
