#include "kernels/expert_ffn.h"

#include "kernels/linear.h"
#include "kernels/silu_mul.h"
#include "support.h"

namespace troupe::kernels {
namespace {

struct Sizes {
  std::int64_t hidden, inner;
};

ExpertWeights make_expert(Numerics family, const Sizes& s, unsigned seed) {
  const auto one = [&](std::int64_t n, std::int64_t k, unsigned number) {
    const auto values = to_bf16(random_values(static_cast<std::size_t>(n * k), seed * 3 + number));
    return pack(family, dense_source(values.data(), WeightType::kBf16, n, k));
  };
  return {one(s.inner, s.hidden, 0), one(s.inner, s.hidden, 1), one(s.hidden, s.inner, 2)};
}

/// One row through one expert, by the ops that it is made of.
std::vector<float> one_by_one(const Context& ctx, const ExpertWeights& w, const float* x) {
  const auto hidden = static_cast<std::size_t>(w.down.n());
  const auto inner = static_cast<std::size_t>(w.up.n());
  std::vector<float> gate(inner), up(inner), out(hidden);
  const Rows g = make_rows(gate.data(), 1, inner), u = make_rows(up.data(), 1, inner);
  linear(ctx, w.gate, const_rows(x, 1, hidden), g);
  linear(ctx, w.up, const_rows(x, 1, hidden), u);
  silu_mul(ctx, g, u, g);
  linear(ctx, w.down, g, make_rows(out.data(), 1, hidden));
  return out;
}

TEST_CASE("a grouped pass gives every row the bits that it has alone") {
  for (Numerics family : supported_numerics()) {
    for (const Sizes& s : {Sizes{64, 48}, Sizes{33, 70}, Sizes{512, 256}}) {
      INFO(to_string(family) << " hidden=" << s.hidden << " inner=" << s.inner);
      constexpr std::size_t kRows = 70;
      const auto hidden = static_cast<std::size_t>(s.hidden);
      const auto x = random_values(kRows * hidden, 99);
      std::vector<ExpertWeights> experts;
      for (unsigned e = 0; e < 4; ++e) experts.push_back(make_expert(family, s, e));
      // One expert has no rows, one has all, one has a row twice.
      std::vector<std::vector<std::int32_t>> lists = {{5, 69, 5}, {}, {}, {0}};
      for (std::int32_t r = 0; r < static_cast<std::int32_t>(kRows); ++r) lists[2].push_back(r);
      std::vector<ExpertCall> calls;
      std::vector<std::vector<float>> expected;
      TestContext one(family);
      for (std::size_t e = 0; e < 4; ++e) {
        calls.push_back({&experts[e], lists[e]});
        for (std::int32_t r : lists[e])
          expected.push_back(
              one_by_one(one, experts[e], x.data() + static_cast<std::size_t>(r) * hidden));
      }
      for (int threads = 1; threads <= 4; ++threads) {
        TestContext ctx(family, threads);
        std::vector<float> out(expected.size() * hidden);
        expert_ffn(ctx, calls, const_rows(x.data(), kRows, hidden),
                   make_rows(out.data(), expected.size(), hidden));
        for (std::size_t i = 0; i < expected.size(); ++i)
          CHECK(same_bits(out.data() + i * hidden, expected[i].data(), hidden));
      }
    }
  }
}

TEST_CASE("nothing to do is done at once") {
  TestContext ctx(Numerics::kReference);
  expert_ffn(ctx, {}, {}, {});
  const ExpertWeights w = make_expert(Numerics::kReference, {8, 8}, 1);
  const ExpertCall call = {&w, {}};
  expert_ffn(ctx, {&call, 1}, const_rows(nullptr, 0, 8), make_rows(nullptr, 0, 8));
  CHECK(ctx.scratch.bytes() == 0);
}

}  // namespace
}  // namespace troupe::kernels
