#pragma once

#include <string>
#include <vector>

#include "kernels/backend.h"
#include "runtime/cpu_family.h"
#include "runtime/numerics.h"

namespace troupe::kernels {

/// Numerics, and what computes them: a processor's instructions, or another back-end.
struct Family {
  Numerics numerics = Numerics::kReference;
  CpuFamily cpu = CpuFamily::kBaseline;
  const Backend* backend = nullptr;  ///< null: the CPU's
  std::uint64_t order_seed = 0;      ///< of a twin
  /// Of the twin of a GPU with less shared memory, which computes attention otherwise; 0: none.
  std::uint64_t small_seed = 0;

  Stream::Options options(ThreadPool* pool) const {
    return {numerics, cpu, pool, backend, order_seed};
  }
  /// To a GPU's twin threads are machines that share CTAs: one and four are enough.
  int step_of_threads() const { return backend == nullptr ? 1 : 3; }
};

inline std::string to_string(const Family& f) {
  return std::string(troupe::to_string(f.numerics)) + " by " +
         std::string(f.backend != nullptr ? f.backend->name : troupe::to_string(f.cpu));
}

/// What is tested here: all that this machine has, or, where AMX is plain C++ or a GPU has a twin,
/// that alone.
const std::vector<Family>& families();

}  // namespace troupe::kernels
