/// `cuda_mma`: a product has its bits however its outputs and its k are cut into CTAs.
#include <cstdint>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/twin/backend.h"
#include "kernels/cuda/twin/twin.h"
#include "product_support.h"
#include "runtime/float_mode.h"

namespace troupe::kernels::cuda_twin {
namespace {

/// Five panels; 75 blocks of k, or slices of 10 or 38.
constexpr std::int64_t kN = 136, kK = 2400;

/// The product of some rows, with as many CTAs as fill a GPU of that size.
std::vector<float> product_with(std::int64_t full_ctas, Stream& stream, const Weight& w,
                                const std::vector<float>& numbers, std::int64_t rows) {
  Stream::Scope scope(stream);
  std::vector<float> held = numbers, y(static_cast<std::size_t>(rows * kN));
  const Activation x = kernels::prepare(stream, host_tensor(held.data(), DType::kF32, rows, kK), w);
  Products p = linear_products(stream.numerics(), w, x,
                               host_tensor(y.data(), DType::kF32, rows, kN), nullptr);
  p.full_ctas = full_ctas;
  mma_products(stream, p);
  for (std::int64_t i = 0; i < kCameWords; ++i) CHECK(x.came[i] == 0);
  return y;
}

TEST_CASE("a product by tensor cores has its bits however many CTAs share it") {
  const FloatMode mode;
  std::uint64_t seed = 0;
  for (const TestMatrix& shape : formats(kN, kK))
    for (const PackOptions& options : {PackOptions{1, false}, {1, true}, {8, false}, {2, true}}) {
      const std::int64_t rows = ++seed % 3 == 0 ? 37 : seed % 3 * 4;
      INFO(to_string(shape) << " slices " << options.slices << " full " << options.full_precision
                            << " rows " << rows);
      const Weight w = pack(Numerics::kCudaMma, filled(shape, 3), options);
      const auto x = Random(4).values(rows * kK);
      Stream stream({.numerics = Numerics::kCudaMma,
                     .backend = cuda_twin_backend(),
                     .order_seed = with_mma_order(seed, MmaOrder::kAligned)});
      // Four panels a CTA, and nothing shared.
      const auto right = product_with(1, stream, w, x, rows);
      for (const std::int64_t full_ctas : {8, 264})
        CHECK(differences(product_with(full_ctas, stream, w, x, rows), right) == 0);
    }
}

}  // namespace
}  // namespace troupe::kernels::cuda_twin
