#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "runtime/clock.h"

namespace troupe {

/// Later times are nobody's: a hundred years and more.
inline constexpr std::int64_t kUnixMsMax = std::int64_t{1} << 42;

/// What time it is for people, for those who are only told what time it is for the program.
struct UnixTime {
  TimePoint at{};            ///< when it was
  std::int64_t unix_ms = 0;  ///< this

  /// Within what can be written down, whatever the machine's clock says.
  std::int64_t of(TimePoint time) const {
    const std::int64_t ms =
        unix_ms + std::chrono::duration_cast<std::chrono::milliseconds>(time - at).count();
    return std::clamp(ms, std::int64_t{0}, kUnixMsMax);
  }
};

}  // namespace troupe
