#include "families.h"
#include "kernels/cuda/twin/backend.h"

namespace troupe::kernels {

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> found;
    for (const Backend* backend : {cuda_twin_backend(), cuda_plain_twin_backend()})
      if (backend != nullptr)
        found.push_back({Numerics::kBf16, CpuFamily::kBaseline, backend, found.size()});
    return found;
  }();
  return all;
}

}  // namespace troupe::kernels
