#pragma once

#include <string>
#include <vector>

#include "runtime/cpu_family.h"
#include "runtime/numerics.h"

namespace troupe::kernels {

/// Numerics, and the instructions that compute them.
struct Family {
  Numerics numerics = Numerics::kReference;
  CpuFamily cpu = CpuFamily::kBaseline;
};

inline std::string to_string(const Family& f) {
  return std::string(troupe::to_string(f.numerics)) + " by " +
         std::string(troupe::to_string(f.cpu));
}

/// What is tested here: all that this machine has, or, where AMX is plain C++, that alone.
const std::vector<Family>& families();

}  // namespace troupe::kernels
