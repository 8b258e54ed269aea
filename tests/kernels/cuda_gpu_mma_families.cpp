/// `cuda_mma` by a GPU, where there is one. In which order an mma adds nobody knows, so what it
/// computes is held to bounds, and a row to its bits alone.
#include "mma_families.h"
#include "reaching_backend.h"

namespace troupe::kernels {
namespace cuda {

Backend backend(bool plain, std::string_view name);  // table.cu

}  // namespace cuda

/// What has the bits of the scalar twin.
const std::vector<Family>& families() {
  static const std::vector<Family> none;
  return none;
}

std::vector<Family> all_orders() {
  const Backend* backend = reaching_backend();
  if (backend == nullptr) return {};
  return {{Numerics::kCudaMma, CpuFamily::kBaseline, backend}};
}

std::vector<Family> other_orders() { return all_orders(); }

const Backend* plain_backend() {
  static const Backend plain = [] {
    Backend b = cuda::backend(true, "cuda_plain");
    b.memory = reaching_backend()->memory;
    return b;
  }();
  return &plain;
}

}  // namespace troupe::kernels
