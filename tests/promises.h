#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string_view>

/// Promised times, as in promises.py: each is told, and judged where the machine is quiet. A test
/// fails for time alone only beyond ten times what was promised, as by a hang, or with
/// TROUPE_JUDGE=1 in the environment whenever a promise is broken.
namespace troupe {

namespace promises {

inline constexpr double kHangTimes = 10;
/// However little was promised: a busy machine may not let a process run for some seconds.
inline constexpr double kHangSeconds = 10;

inline void hold(std::string_view what, double measured, double promise, double hang,
                 std::string_view unit) {
  std::ostringstream line;
  line << what << ": " << measured << unit << " of " << promise << unit
       << " promised: " << (measured <= promise ? "kept" : "BROKEN");
  MESSAGE(line.str());
  const char* judge = std::getenv("TROUPE_JUDGE");
  const bool judged = judge != nullptr && std::string_view(judge) == "1";
  CHECK_MESSAGE(measured <= (judged ? promise : hang), line.str());
}

}  // namespace promises

/// Holds a time to its promise.
inline void promised(std::string_view what, std::chrono::duration<double> measured,
                     std::chrono::duration<double> promise) {
  promises::hold(what, measured.count(), promise.count(),
                 std::max(promises::kHangTimes * promise.count(), promises::kHangSeconds), " s");
}

/// The same of a number without a unit: of times that were measured in one run, or the share of a
/// core.
inline void promised_ratio(std::string_view what, double measured, double promise) {
  promises::hold(what, measured, promise, promises::kHangTimes * promise, "");
}

}  // namespace troupe
