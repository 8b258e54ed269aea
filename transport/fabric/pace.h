#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "runtime/clock.h"
#include "runtime/limits.h"

namespace troupe::transport {

/// How large the segments of a connection are: smaller ones on a slow link, so that what all
/// credits let under way is gone within a fraction of a second. What is to overtake waits no longer
/// than that, and the other end hears something often.
class Pace {
 public:
  std::size_t segment_bytes() const { return bytes_; }
  /// A segment left that takes a credit.
  void sent(TimePoint now) { sent_.push_back(now); }
  /// So many credits came back, of those that left first.
  void returned(std::size_t credits, TimePoint now) {
    if (credits == 0 || credits > sent_.size()) return;
    // The last of them: the others may have waited for it to be returned together.
    const Duration took = now - sent_[credits - 1];
    sent_.erase(sent_.begin(), sent_.begin() + static_cast<std::ptrdiff_t>(credits));
    if (took > kSlow) bytes_ = std::max(bytes_ / 2, kLeast);
    if (took < kQuick) bytes_ = std::min(bytes_ * 2, limits::kBulkSegmentBytes);
  }

 private:
  static constexpr auto kSlow = std::chrono::milliseconds(200);
  static constexpr auto kQuick = std::chrono::milliseconds(50);
  static constexpr std::size_t kLeast = 16u << 10;

  std::size_t bytes_ = limits::kBulkSegmentBytes / 4;
  std::deque<TimePoint> sent_;  ///< of segments whose credits are not back; one a credit
};

}  // namespace troupe::transport
