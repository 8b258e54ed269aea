#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/generation.h"

namespace troupe {

/// Events of one kind that are told within one kEventSpan; the others are counted, and told as one
/// at its end. A cluster of tens of nodes whose every node joins or is lost stays below it. Of the
/// head's own pauses one is told.
inline constexpr std::size_t kEventsOfKindMax = 64;
inline constexpr Duration kEventSpan = std::chrono::minutes(1);

/// What happened to the cluster, the newest limits::kClusterEventsMax of it. A flood of one kind
/// neither fills the log nor washes out the others: a kind has a bound a minute, and where room is
/// short the kind that takes most of it loses its oldest.
class EventLog {
 public:
  /// The time on the clock of the wall at `started`.
  EventLog(TimePoint started, std::int64_t started_unix_ms)
      : started_(started), started_unix_ms_(started_unix_ms) {}

  /// The event as it is to be told, or none: then it is only counted.
  std::optional<ClusterEvent> add(std::string kind, std::string text, TimePoint now);
  /// For each kind whose span is over, what was not told in it.
  std::vector<ClusterEvent> sum_up(TimePoint now);
  /// When the next is to be summed up; none: nothing was left out.
  std::optional<TimePoint> next_sum() const;

  const std::deque<ClusterEvent>& events() const { return events_; }  ///< newest last
  std::string violation() const;

 private:
  struct Kind {
    TimePoint since{};      ///< its span began
    std::size_t told = 0;   ///< in this span
    std::size_t count = 0;  ///< left out in this span
    std::size_t kept = 0;   ///< in the log
    std::string last;       ///< the newest one that was left out
  };
  ClusterEvent keep(Kind& kind, std::string name, std::string text, TimePoint now);

  TimePoint started_;
  std::int64_t started_unix_ms_;
  std::deque<ClusterEvent> events_;
  std::map<std::string, Kind> kinds_;  ///< the Supervisor's own: some twenty
};

}  // namespace troupe
