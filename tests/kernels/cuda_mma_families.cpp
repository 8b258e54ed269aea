/// `cuda_mma` by the twin of a GPU, with that order of an mma which the scalar twin has too.
#include "families.h"
#include "kernels/cuda/twin/backend.h"

namespace troupe::kernels {

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> found;
    if (const Backend* backend = cuda_twin_backend(); backend != nullptr)
      found.push_back({Numerics::kCudaMma, CpuFamily::kBaseline, backend, 1});
    return found;
  }();
  return all;
}

}  // namespace troupe::kernels
