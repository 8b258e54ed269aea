#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/cuda/twin/machine.h"

namespace troupe::kernels::cuda_twin {

/// Counts what warps move: sectors of 32 bytes for loads and copies of sixteen bytes from global
/// memory, and passes through the banks for shared memory. What the lanes of a warp do for the n-th
/// time at one place, or as their n-th access of a kind since the last barrier, counts as one
/// instruction.
///
/// That is how the code is written; the compiler may load and store wider, and caches may hold what
/// comes twice.
class Traffic {
 public:
  enum class Kind : std::uint8_t { kLoad, kSharedRead, kSharedWrite };
  struct Total {
    std::int64_t instructions = 0;  ///< of a warp
    std::int64_t units = 0;         ///< sectors, or passes
    std::int64_t least = 0;         ///< that could have moved as many different bytes
  };
  /// By the line of a load; copies beside a thread, and shared memory, are line 0.
  using Totals = std::map<std::pair<Kind, std::uint32_t>, Total>;

  void note(Kind kind, int thread, std::uint32_t line, std::uintptr_t at, std::size_t bytes);
  /// At a barrier, and where a CTA ends.
  void settle();
  const Totals& totals() const { return totals_; }

 private:
  struct Access {
    int lane;
    std::uintptr_t at;
    std::size_t bytes;
  };
  static std::int64_t sectors(const std::vector<Access>& lanes);
  static std::int64_t least_sectors(const std::vector<Access>& lanes);
  static std::int64_t passes(const std::vector<Access>& lanes, bool any_bank);

  using Place = std::tuple<Kind, std::uint32_t, int>;  ///< and a warp, or a thread
  std::map<Place, std::size_t> counts_;
  std::map<Place, std::vector<std::vector<Access>>> pending_;
  Totals totals_;
};

}  // namespace troupe::kernels::cuda_twin
