#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/clock.h"

namespace troupe {

/// How long a device takes for the same small piece of work, beside the best it ever did.
class SpeedWatch {
 public:
  /// Far slower than it was, or than it should be.
  static constexpr double kSlow = 5;
  /// Near enough to its best again.
  static constexpr double kFine = 2;
  /// Probes that must agree: the median counts, so that one that was interrupted does not.
  static constexpr std::size_t kProbes = 5;

  void add(std::uint32_t probe_us);
  /// Median of the newest probes over the best; none before there are enough of them.
  std::optional<double> slowdown() const;

  // Kept by SlowDevices.
  std::optional<TimePoint> slow_since;
  bool drained = false;  ///< it was slow for too long

 private:
  std::array<std::uint32_t, kProbes> newest_{};
  std::size_t count_ = 0;
  std::uint32_t best_ = 0;
};

}  // namespace troupe
