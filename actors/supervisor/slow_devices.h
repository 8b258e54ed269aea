#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "actors/supervisor/speed_watch.h"
#include "runtime/ids.h"

namespace troupe {

/// Which devices became far slower than they were. A device is slow when it is far from its best
/// and from what the others are from theirs: a machine that is busy all over slows everyone down.
///
///     fine ── slow for kSlowAfter ──► slow ── for kSlowDrainAfter ──► drained
///       ▲                              │                                │
///       └──────────── near its best ───┴────────────────────────────────┘
class SlowDevices {
 public:
  struct Changes {
    bool slow = false;               ///< another set of devices is slow
    bool drained = false;            ///< another set of devices is to be drained
    std::vector<std::string> texts;  ///< for people
  };

  void add(const DeviceRef& device, std::uint32_t probe_us) { speeds_[device].add(probe_us); }
  Changes check(TimePoint now);
  /// Its node is a member no more.
  void forget(NodeId node);
  /// The cluster cannot spare them: they serve on.
  void keep_drained(TimePoint now);

  bool slow(const DeviceRef& device) const { return slow_.contains(device); }
  const std::set<DeviceRef>& slow() const { return slow_; }
  bool drained(const DeviceRef& device) const;

  std::string violation() const;

 private:
  std::map<DeviceRef, SpeedWatch> speeds_;
  std::set<DeviceRef> slow_;
};

}  // namespace troupe
