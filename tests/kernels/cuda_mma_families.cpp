/// `cuda_mma` by the twins of a large and a small GPU, with that order of an mma which the scalar
/// twin has too, and with others.
#include "kernels/cuda/twin/backend.h"
#include "kernels/cuda/twin/twin.h"
#include "mma_families.h"

namespace troupe::kernels {
namespace {

using Order = cuda_twin::MmaOrder;

std::vector<Family> by_order(std::initializer_list<Order> orders) {
  std::vector<Family> all;
  for (Family f : families())
    for (const std::uint64_t seed : {f.order_seed, f.small_seed})
      for (const Order order : orders) {
        all.push_back(f);
        all.back().order_seed = cuda_twin::with_mma_order(seed + 2, order);
      }
  return all;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> found;
    if (const Backend* backend = cuda_twin_backend(); backend != nullptr)
      found.push_back(
          {Numerics::kCudaMma, CpuFamily::kBaseline, backend, 1, 1 | cuda_twin::kSmallGpu});
    return found;
  }();
  return all;
}

std::vector<Family> all_orders() {
  return by_order({Order::kRoundedOnce, Order::kAscending, Order::kDescending, Order::kAligned});
}

std::vector<Family> other_orders() { return by_order({Order::kDescending, Order::kAligned}); }

const Backend* plain_backend() { return cuda_plain_twin_backend(); }

}  // namespace troupe::kernels
