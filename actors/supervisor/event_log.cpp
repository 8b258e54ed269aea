#include "actors/supervisor/event_log.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::size_t kLastBytesMax = 512;

/// That the head stands still again and again is one trouble, of the machine: it is told as one.
std::size_t told_max(std::string_view kind) { return kind == "head_paused" ? 1 : kEventsOfKindMax; }

}  // namespace

std::optional<ClusterEvent> EventLog::add(std::string kind, std::string text, TimePoint now) {
  Kind& k = kinds_[kind];
  if (k.count == 0 && now - k.since >= kEventSpan) k.told = 0;
  if (k.told == 0) k.since = now;
  if (k.told >= told_max(kind)) {
    ++k.count;
    k.last = text.substr(0, kLastBytesMax);
    return std::nullopt;
  }
  ++k.told;
  return keep(k, std::move(kind), std::move(text), now);
}

std::vector<ClusterEvent> EventLog::sum_up(TimePoint now) {
  std::vector<ClusterEvent> sums;
  for (auto& [name, kind] : kinds_) {
    if (kind.count == 0 || now - kind.since < kEventSpan) continue;
    std::string text = "… and " + std::to_string(kind.count) +
                       " more like this in the last minute; the last: " + kind.last;
    kind = {.since = now, .told = 1, .count = 0, .kept = kind.kept, .last = {}};
    sums.push_back(keep(kind, name, std::move(text), now));
  }
  return sums;
}

std::optional<TimePoint> EventLog::next_sum() const {
  std::optional<TimePoint> next;
  for (const auto& [name, kind] : kinds_)
    if (kind.count > 0) next = std::min(next.value_or(TimePoint::max()), kind.since + kEventSpan);
  return next;
}

ClusterEvent EventLog::keep(Kind& kind, std::string name, std::string text, TimePoint now) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  events_.push_back({started_unix_ms_ + since.count(), std::move(name), std::move(text)});
  ++kind.kept;
  ClusterEvent event = events_.back();
  if (events_.size() > limits::kClusterEventsMax) {
    const auto most = std::max_element(
        kinds_.begin(), kinds_.end(),
        [](const auto& a, const auto& b) { return a.second.kept < b.second.kept; });
    --most->second.kept;
    events_.erase(std::find_if(events_.begin(), events_.end(),
                               [&](const ClusterEvent& e) { return e.kind == most->first; }));
  }
  return event;
}

std::string EventLog::violation() const {
  std::size_t kept = 0;
  for (const auto& [name, kind] : kinds_) kept += kind.kept;
  if (kept != events_.size()) return "The log of events is miscounted.";
  if (events_.size() > limits::kClusterEventsMax) return "The log of events has grown too long.";
  return {};
}

}  // namespace troupe
