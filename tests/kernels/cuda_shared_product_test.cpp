/// CTAs that share a panel: however many do, a product has the bits of the plain one.
#include <cstdint>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/twin/backend.h"
#include "product_support.h"
#include "runtime/float_mode.h"

namespace troupe::kernels::cuda_twin {
namespace {

constexpr std::int64_t kN = 40, kK = 2080;  // two panels, three chunks of which one is nearly empty

/// A matrix with its rows, and the product of them by `multiply`.
struct Case {
  Case(const TestMatrix& shape, const PackOptions& options, std::int64_t rows, std::uint64_t seed)
      : stream({.numerics = Numerics::kBf16, .backend = cuda_twin_backend(), .order_seed = seed}),
        w(pack(Numerics::kBf16, filled(shape, 3), options)),
        numbers(Random(4).values(rows * kK)),
        x(kernels::prepare(stream, host_tensor(numbers.data(), DType::kF32, rows, kK), w)) {}

  std::vector<float> by(decltype(fast_products) multiply, std::int64_t full_ctas = kFullCtas) {
    std::vector<float> y(static_cast<std::size_t>(x.rows * kN));
    p = linear_products(Numerics::kBf16, w, x, host_tensor(y.data(), DType::kF32, x.rows, kN),
                        nullptr);
    p.full_ctas = full_ctas;
    multiply(stream, p);
    return y;
  }

  Stream stream;
  const Weight w;
  std::vector<float> numbers;
  const Activation x;
  Products p;
};

TEST_CASE("a product has its bits whether one CTA has a panel or several share it") {
  const FloatMode mode;
  std::uint64_t seed = 0;
  for (const TestMatrix& shape : formats(kN, kK))
    for (const PackOptions& options : {PackOptions{1, false}, {8, false}, {2, true}})
      for (const std::int64_t rows : {1, 3, 8}) {
        INFO(to_string(shape) << " slices " << options.slices << " full " << options.full_precision
                              << " rows " << rows);
        Case c(shape, options, rows, ++seed);
        const auto right = c.by(plain_products);
        for (const std::int64_t full : {std::int64_t{1}, c.p.count * 2 * 2, kFullCtas})
          CHECK(differences(c.by(fast_products, full), right) == 0);
        for (std::int64_t i = 0; i < kCameWords; ++i) CHECK(c.x.came[i] == 0);
      }
}

TEST_CASE("CTAs share where panels are few and their sums take little") {
  Products p;
  std::uint32_t came = 0;
  const auto sharers = [&](std::int64_t count, std::int64_t n, std::int64_t k) {
    p.count = count;
    p.layout.panels = n / 32;
    p.layout.k = k;
    return p.sharers(ceil_div(k, 1024), 32 << 10);
  };
  CHECK(sharers(1, 256, 7168) == 1);  // nothing to come to
  p.came = &came;
  CHECK(sharers(1, 256, 7168) == 7);    // the gate
  CHECK(sharers(1, 576, 7168) == 7);    // kv_a
  CHECK(sharers(1, 1536, 7168) == 4);   // q_a: 7 chunks by two
  CHECK(sharers(2, 2048, 7168) == 1);   // a shared expert: its sums are too many
  CHECK(sharers(1, 7168, 2048) == 1);   // panels enough
  CHECK(sharers(1, 64, 1024) == 1);     // too short
  CHECK(sharers(16, 1536, 7168) == 1);  // a prompt
  for (std::int64_t n = 32; n <= 8192; n += 32)
    for (std::int64_t count = 1; count <= 64; ++count)
      if (sharers(count, n, 4096) > 1) CHECK(count * n / 32 <= kCameWords);
}

TEST_CASE("an activation serves one product after the other") {
  const FloatMode mode;
  const TestMatrix shape = {Codes::kFp8, kN, kK, 128, 128};
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Case c(shape, {1, false}, 2, seed);
    std::vector<float> y(2 * kN), right(2 * kN);
    const auto to = [](std::vector<float>& v) {
      return host_tensor(v.data(), DType::kF32, 2, kN);
    };
    plain_linear(c.stream, c.w, c.x, to(right), nullptr);
    for (int i = 0; i < 3; ++i) {
      std::fill(y.begin(), y.end(), 0.0f);
      kernels::linear(c.stream, c.w, c.x, to(y));
      CHECK(differences(y, right) == 0);
    }
  }
}

}  // namespace
}  // namespace troupe::kernels::cuda_twin
