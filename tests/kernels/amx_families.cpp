#include "families.h"

namespace troupe::kernels {

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> found;
    // What is around the tiles takes AVX-512.
    if (supported_cpu_families().back() >= CpuFamily::kAvx512)
      found.push_back({Numerics::kBf16, CpuFamily::kAmx});
    return found;
  }();
  return all;
}

}  // namespace troupe::kernels
