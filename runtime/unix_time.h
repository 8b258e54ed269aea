#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/clock.h"

namespace troupe {

/// What time it is for people, for those who are only told what time it is for the program.
struct UnixTime {
  TimePoint at{};            ///< when it was
  std::int64_t unix_ms = 0;  ///< this

  std::int64_t of(TimePoint time) const {
    return unix_ms + std::chrono::duration_cast<std::chrono::milliseconds>(time - at).count();
  }
  TimePoint from(std::int64_t ms) const { return at + std::chrono::milliseconds(ms - unix_ms); }
};

}  // namespace troupe
