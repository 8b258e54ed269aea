#pragma once

#include <chrono>

namespace troupe {

using Duration = std::chrono::nanoseconds;
/// Monotonic time. State machines are handed `now`; only the actors around them read a clock.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

inline TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace troupe
