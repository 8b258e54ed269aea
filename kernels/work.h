#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/grid.h"

namespace troupe::kernels {

/// Something that a device does in its turn.
struct Work {
  enum class Kind : std::uint8_t {
    kKernel,
    kCopyIn,   ///< from staging to its memory
    kCopyOut,  ///< from its memory to staging
  };
  Kind kind = Kind::kKernel;
  const void* from = nullptr;  ///< of a kernel its arguments, which whoever keeps the work copies
  void* to = nullptr;
  std::size_t bytes = 0;

  // Of a kernel.
  const void* function = nullptr;  ///< what the back-end runs
  Grid grid = {};
  int threads = 0;
  std::size_t shared_bytes = 0;  ///< that are asked for at the launch
  bool meets = false;            ///< its threads wait for each other, or share memory
};

/// Whether one may stand in a graph where the other stood, with other arguments.
constexpr bool same_place(const Work& a, const Work& b) {
  return a.kind == b.kind && a.function == b.function;
}

}  // namespace troupe::kernels
