/// The ops that treat every row by itself: norms, activations, rotary turns, rounding.
#include <functional>

#include "kernels/combine.h"
#include "kernels/embedding.h"
#include "kernels/residual.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/round_wire.h"
#include "kernels/silu_mul.h"
#include "support.h"

namespace troupe::kernels {
namespace {

constexpr std::size_t kWidths[] = {1, 2, 7, 16, 33, 100, 576};

/// Runs an op over 512 rows one by one, then in batches on 1 to 4 threads; bits must be equal.
/// The op turns x [rows, d] into y [rows, d]; `first` is the number of its first row.
using RowFunction = std::function<void(const Context&, std::size_t first, ConstRows x, Rows y)>;

void check_invariance(std::size_t d, const RowFunction& op) {
  const auto x = random_values(512 * d, 1, 3);
  for (Numerics family : supported_numerics()) {
    std::vector<float> alone(512 * d), y(512 * d);
    TestContext one(family);
    for (std::size_t r = 0; r < 512; ++r)
      op(one, r, const_rows(x.data() + r * d, 1, d), make_rows(alone.data() + r * d, 1, d));
    for (int threads = 1; threads <= 4; ++threads) {
      TestContext ctx(family, threads);
      for (std::size_t rows : kRowCounts) {
        op(ctx, 0, const_rows(x.data(), rows, d), make_rows(y.data(), rows, d));
        CHECK(same_bits(y.data(), alone.data(), rows * d));
      }
    }
  }
}

TEST_CASE("rms_norm") {
  for (std::size_t d : kWidths) {
    const auto x = random_values(3 * d, 2, 5), weight = random_values(d, 3);
    std::vector<float> y(3 * d);
    TestContext ctx(Numerics::kReference);
    rms_norm(ctx, const_rows(x.data(), 3, d), weight.data(), 1e-6f, make_rows(y.data(), 3, d));
    for (std::size_t r = 0; r < 3; ++r) {
      double squares = 0;
      for (std::size_t i = 0; i < d; ++i) squares += std::pow(x[r * d + i], 2.0);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(d) + 1e-6);
      for (std::size_t i = 0; i < d; ++i)
        CHECK(y[r * d + i] == doctest::Approx(x[r * d + i] * scale * weight[i]).epsilon(1e-6));
    }
  }
  const auto weight = random_values(576, 3);
  check_invariance(576, [&](const Context& ctx, std::size_t, ConstRows x, Rows y) {
    rms_norm(ctx, x, weight.data(), 1e-6f, y);
  });
}

TEST_CASE("rms_norm of zeros and of what is not a number") {
  TestContext ctx(Numerics::kReference);
  std::vector<float> x = {0, 0, std::nanf(""), 1}, weight = {1, 1}, y(4);
  rms_norm(ctx, const_rows(x.data(), 2, 2), weight.data(), 1e-6f, make_rows(y.data(), 2, 2));
  CHECK(y[0] == 0);
  CHECK(std::isnan(y[3]));
}

TEST_CASE("silu_mul, also in place and at the ends of the range") {
  for (std::size_t d : kWidths) {
    const auto up = random_values(d, 5);
    auto gate = random_values(d, 4, 20);
    std::vector<double> exact(d);
    for (std::size_t i = 0; i < d; ++i)
      exact[i] = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i];
    TestContext ctx(Numerics::kReference);
    const Rows g = make_rows(gate.data(), 1, d);
    silu_mul(ctx, g, const_rows(up.data(), 1, d), g);
    for (std::size_t i = 0; i < d; ++i) CHECK(gate[i] == doctest::Approx(exact[i]).epsilon(1e-6));
  }
  TestContext ctx(Numerics::kReference);
  const std::vector<float> gate = {-1000, 1000, INFINITY, std::nanf("")}, up(4, 1.0f);
  std::vector<float> y(4);
  silu_mul(ctx, const_rows(gate.data(), 1, 4), const_rows(up.data(), 1, 4),
           make_rows(y.data(), 1, 4));
  CHECK(y[0] == 0);
  CHECK(y[1] == 1000);
  CHECK(y[2] == INFINITY);
  CHECK(std::isnan(y[3]));
  check_invariance(100, [&](const Context& c, std::size_t, ConstRows x, Rows out) {
    silu_mul(c, x, x, out);
  });
}

TEST_CASE("rope turns pairs by their angle") {
  constexpr std::size_t kHalf = 5, kPositions = 40;
  std::vector<float> cos, sin;
  for (std::size_t p = 0; p < kPositions; ++p)
    for (std::size_t i = 0; i < kHalf; ++i) {
      const double angle = static_cast<double>(p) * std::pow(10.0, -static_cast<double>(i));
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  const RopeTable table = {cos.data(), sin.data(), kPositions, kHalf};
  TestContext ctx(Numerics::kReference);
  // Heads with a part that is not turned in front, as q has.
  constexpr std::size_t kRows = 2, kHeads = 3, kWide = 2 * kHalf + 4;
  const std::vector<std::int32_t> positions = {0, 33};
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalves}) {
    const auto before = random_values(kRows * kHeads * kWide, 6);
    auto x = before;
    rope(ctx, table, pairs, positions.data(),
         {x.data() + 4, kRows, kHeads, 2 * kHalf, kHeads * kWide, kWide});
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t h = 0; h < kHeads; ++h) {
        const float* a = before.data() + (r * kHeads + h) * kWide;
        const float* b = x.data() + (r * kHeads + h) * kWide;
        CHECK(same_bits(a, b, 4));
        for (std::size_t i = 0; i < kHalf; ++i) {
          const std::size_t first = 4 + (pairs == RopePairs::kInterleaved ? 2 * i : i);
          const std::size_t second = pairs == RopePairs::kInterleaved ? first + 1 : first + kHalf;
          const double angle = positions[r] * std::pow(10.0, -static_cast<double>(i));
          const double c = std::cos(angle), s = std::sin(angle);
          CHECK(b[first] == doctest::Approx(a[first] * c - a[second] * s).epsilon(1e-5));
          CHECK(b[second] == doctest::Approx(a[second] * c + a[first] * s).epsilon(1e-5));
        }
      }
  }
  std::vector<std::int32_t> all(512);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<std::int32_t>(i * 7 % kPositions);
  check_invariance(2 * kHalf, [&](const Context& c, std::size_t first, ConstRows in, Rows y) {
    for (std::size_t r = 0; r < in.rows; ++r) std::copy_n(in.row(r), in.cols, y.row(r));
    rope(c, table, RopePairs::kInterleaved, all.data() + first,
         {y.data, y.rows, 1, y.cols, y.stride, y.cols});
  });
}

TEST_CASE("embedding widens rows") {
  constexpr std::int64_t kN = 20, kK = 33;
  const auto values = random_values(kN * kK, 7);
  const auto halves = to_bf16(values);
  const std::vector<std::int32_t> ids = {19, 0, 7, 7};
  std::vector<float> y(4 * kK);
  TestContext ctx(Numerics::kReference);
  embedding(ctx, dense_source(values.data(), WeightType::kF32, kN, kK), ids.data(),
            make_rows(y.data(), 4, kK));
  for (std::size_t r = 0; r < 4; ++r)
    CHECK(same_bits(y.data() + r * kK, values.data() + ids[r] * kK, kK));
  embedding(ctx, dense_source(halves.data(), WeightType::kBf16, kN, kK), ids.data(),
            make_rows(y.data(), 4, kK));
  for (std::size_t i = 0; i < kK; ++i) CHECK(y[kK + i] == rounded(values[i]));
}

TEST_CASE("the wire rounds once") {
  constexpr std::size_t kRows = 3, kD = 37;
  auto x = random_values(kRows * kD, 8);
  x[0] = std::nanf("");
  x[1] = INFINITY;
  x[2] = 3.4e38f;
  TestContext ctx(Numerics::kReference);
  std::vector<float> y(x.size()), there(x.size());
  for (const WireType type : {WireType::kF32, WireType::kBf16}) {
    to_wire(ctx, type, const_rows(x.data(), kRows, kD), there.data());
    from_wire(ctx, type, there.data(), make_rows(y.data(), kRows, kD));
    auto in_place = x;
    round_to_wire(ctx, type, make_rows(in_place.data(), kRows, kD));
    CHECK(same_bits(in_place.data(), y.data(), y.size()));
    CHECK(std::isnan(y[0]));
    CHECK(y[1] == INFINITY);
    for (std::size_t i = 1; i < x.size(); ++i)
      CHECK(y[i] == (type == WireType::kF32 ? x[i] : rounded(x[i])));
  }
}

TEST_CASE("residual_add and combine add in the order given") {
  constexpr std::size_t kRows = 2, kD = 21, kPerRow = 3;
  TestContext ctx(Numerics::kReference, 2);
  for (const WireType type : {WireType::kF32, WireType::kBf16}) {
    const auto base = random_values(kRows * kD, 9);
    const auto outs = random_values(kRows * kPerRow * kD, 10);
    const auto halves = to_bf16(outs);
    std::vector<ExpertOutput> list;
    for (std::size_t i = 0; i < kRows * kPerRow; ++i)
      list.push_back({type == WireType::kF32 ? static_cast<const void*>(outs.data() + i * kD)
                                             : halves.data() + i * kD,
                      0.1f * static_cast<float>(i + 1)});
    auto y = base;
    combine(ctx, type, list, kPerRow, make_rows(y.data(), kRows, kD));
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t i = 0; i < kD; ++i) {
        float expected = base[r * kD + i];
        for (std::size_t e = r * kPerRow; e < (r + 1) * kPerRow; ++e) {
          const float v = outs[e * kD + i];
          expected += list[e].weight * (type == WireType::kF32 ? v : rounded(v));
        }
        CHECK(y[r * kD + i] == expected);
      }
  }
  check_invariance(33, [](const Context& c, std::size_t, ConstRows x, Rows y) {
    for (std::size_t r = 0; r < x.rows; ++r) std::copy_n(x.row(r), x.cols, y.row(r));
    residual_add(c, x, y);
  });
}

}  // namespace
}  // namespace troupe::kernels
