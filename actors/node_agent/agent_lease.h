#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "runtime/clock.h"
#include "runtime/limits.h"

namespace troupe {

/// A member's lease. It counts from when what renews it was sent, so that it never ends later here
/// than at the head.
class AgentLease {
 public:
  /// A membership begins: its Join was sent at `from`.
  void begin(TimePoint from, Duration length);
  /// The number of a Renew that is sent now.
  std::uint64_t renew(TimePoint now);
  /// It was answered. Answers to older ones count no more.
  void renewed(std::uint64_t number);
  /// Nothing is sent this time.
  void skip(TimePoint now) { next_renew_ = now + limits::kRenewEvery; }

  bool over(TimePoint now) const { return now >= end_; }
  bool due(TimePoint now) const { return now >= next_renew_; }
  TimePoint end() const { return end_; }
  TimePoint next_wake() const { return std::min(next_renew_, end_); }
  std::string violation() const;

 private:
  Duration length_{};
  TimePoint end_{};
  TimePoint next_renew_{};
  std::uint64_t number_ = 0;
  std::map<std::uint64_t, TimePoint> renews_;  // sent and not answered; at most kRenewsMax
};

}  // namespace troupe
