#pragma once

#include <cstdint>
#include <map>

#include "actors/control/control_lane.h"
#include "actors/metrics/metrics.h"
#include "actors/supervisor/supervisor.h"
#include "runtime/ids.h"

namespace troupe {

/// Brings the metrics to what the Supervisor and the control lane say now. Their counters
/// grow, or start again with a device; metrics only grow.
class ClusterMetrics {
 public:
  void update(const Supervisor& supervisor, const ControlStats& lane, Metrics& metrics);

 private:
  std::uint64_t refused_ = 0;                           // of the lane's and the Supervisor's
  std::uint64_t garbage_ = 0;                           // of the lane's
  std::uint64_t recoveries_ = 0, moves_ = 0;            // of the Supervisor's
  std::map<std::uint32_t, std::uint64_t> preemptions_;  // by replica
  std::map<DeviceRef, std::uint64_t> reads_;
};

}  // namespace troupe
