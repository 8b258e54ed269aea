#pragma once

#include <optional>

#include "runtime/clock.h"
#include "runtime/limits.h"

namespace troupe {

/// Notices that its process stood still: a closed lid, a paused machine, SIGSTOP, a core that
/// others had. What has become late meanwhile says nothing about others then. Where the clock
/// stands still as well, nothing has become late.
class SleepWatch {
 public:
  /// A wake-up was asked for at that time; none: not any more.
  void expect(std::optional<TimePoint> wake) { wake_ = wake; }
  /// How much too late the turn at `now` is, if it is; once for each wake-up.
  std::optional<Duration> overslept(TimePoint now) {
    if (!wake_ || now - *wake_ < limits::kOversleep) return std::nullopt;
    const Duration late = now - *wake_;
    wake_.reset();
    return late;
  }

 private:
  std::optional<TimePoint> wake_;
};

}  // namespace troupe
