#pragma once

#include <cstdint>

namespace troupe::kernels {

/// CTAs of a launch.
struct Grid {
  std::int64_t x = 1, y = 1;
  bool operator==(const Grid&) const = default;
};

/// One of them.
struct Block {
  std::int64_t x = 0, y = 0;
};

/// What every GPU since sm_80 has.
inline constexpr int kThreadsMax = 1024;                   ///< of a CTA
inline constexpr std::size_t kSharedBytesMax = 48u << 10;  ///< without asking for more
inline constexpr std::size_t kWideSharedBytesMax = 99u << 10;
/// What some have: sm_80, sm_90 and sm_100.
inline constexpr std::size_t kLargeSharedBytes = 163u << 10;
/// What sm_90 has: for kernels of sm_90a alone.
inline constexpr std::size_t kMostSharedBytes = 227u << 10;
inline constexpr std::int64_t kGridXMax = 0x7fffffff, kGridYMax = 65535;

}  // namespace troupe::kernels
