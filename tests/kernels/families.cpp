#include "families.h"

namespace troupe::kernels {

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> found = {{Numerics::kReference, CpuFamily::kBaseline}};
    for (const CpuFamily cpu : supported_cpu_families())
      for (const Numerics n : numerics_of(cpu))
        if (n == Numerics::kBf16 || n == Numerics::kAvx512Bf16) found.push_back({n, cpu});
    return found;
  }();
  return all;
}

}  // namespace troupe::kernels
