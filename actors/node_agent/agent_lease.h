#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "runtime/clock.h"
#include "runtime/limits.h"

namespace troupe {

/// A member's lease. It counts from when what renews it was sent, so that it never ends later here
/// than at the head. When it has ended, the member waits for a while to be renewed all the same: it
/// may be that everybody stood still.
///
///     runs ── over ──► waits ── renewed ──► runs
///                        └── limits::kLeasePause ──► lost
///
/// And for how long a worker whose membership is over keeps what it has.
class AgentLease {
 public:
  /// A Join is sent now.
  void asked(TimePoint now) { asked_ = now; }
  /// A membership begins: as of when the Join was sent.
  void begin(Duration length, Duration keep_for);
  /// It is over.
  void left(TimePoint now) { keep_until_ = now + keep_for_; }
  /// When what was kept since then is let go; none: it has been, or a membership goes on.
  std::optional<TimePoint> keep_until() const { return keep_until_; }
  Duration keep_for() const { return keep_for_; }
  void let_go() { keep_until_.reset(); }
  /// The number of a Renew that is sent now.
  std::uint64_t renew(TimePoint now);
  /// It was answered. Answers to older ones count no more.
  void renewed(std::uint64_t number);
  /// The newest that was answered; 0: none yet.
  std::uint64_t heard() const { return heard_; }
  /// Nothing is sent this time.
  void skip(TimePoint now) { next_renew_ = now + limits::kRenewEvery; }

  bool over(TimePoint now) const { return now >= end_; }
  /// It has ended, and nothing is sent until it is renewed; at once a Renew.
  void wait(TimePoint now) { waits_since_ = next_renew_ = now; }
  void go_on() { waits_since_.reset(); }
  bool waits() const { return waits_since_.has_value(); }
  bool lost(TimePoint now) const {
    return waits_since_ && now - *waits_since_ >= limits::kLeasePause;
  }
  bool due(TimePoint now) const { return now >= next_renew_; }
  TimePoint end() const { return end_; }
  TimePoint next_wake() const { return waits() ? next_renew_ : std::min(next_renew_, end_); }
  std::string violation() const;

 private:
  Duration length_{};
  Duration keep_for_{};
  std::optional<TimePoint> keep_until_;
  TimePoint asked_{};
  TimePoint end_{};
  TimePoint next_renew_{};
  std::optional<TimePoint> waits_since_;
  std::uint64_t number_ = 0, heard_ = 0;
  std::map<std::uint64_t, TimePoint> renews_;  // sent and not answered; at most kRenewsMax
};

}  // namespace troupe
