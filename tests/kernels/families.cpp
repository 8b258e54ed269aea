#include "families.h"

namespace troupe::kernels {

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> found = {{Numerics::kReference, CpuFamily::kBaseline}};
    for (const CpuFamily cpu : supported_cpu_families())
      if (cpu != CpuFamily::kBaseline) found.push_back({Numerics::kBf16, cpu});
    return found;
  }();
  return all;
}

}  // namespace troupe::kernels
