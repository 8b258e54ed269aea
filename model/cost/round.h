#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "model/cost/device_speed.h"
#include "model/cost/routes.h"
#include "model/cost/work.h"
#include "runtime/placement.h"

namespace troupe {

/// What one device does in a round.
struct DeviceLoad {
  double weight_bytes = 0, kv_bytes = 0, operations = 0;
  WireBytes wire;
  double memory_s = 0, compute_s = 0;  ///< the least that its ceilings allow
  double expected_s = 0;
};

/// Seconds that a round takes at least, by what limits it.
struct RoundBound {
  double memory_s = 0, compute_s = 0, wire_s = 0;
  double seconds() const;
};

/// A round: every replica has as many steps in flight as it may, and each of them ends once.
struct Round {
  RoundBound bound;
  double latency_s = 0;   ///< expected of one step, from layer to layer
  double overhead_s = 0;  ///< of latency_s: what ops and messages take beside their work
  double busy_s = 0;      ///< expected of the device that has most to do
  DeviceLoad busiest;     ///< that device
  double passes = 0;      ///< of experts, in all
  double hits = 0;        ///< copies that a pass reads, on average
  double seconds() const { return latency_s > busy_s ? latency_s : busy_s; }
};

/// By layer, of those with experts.
using Routes = std::map<std::int32_t, LayerRoutes>;
Routes routes_of(const Placement& placement, const std::map<std::int32_t, ExpertChances>& chances);

/// Costs of the steps of all replicas of a placement. Replicas work at the same time; what they
/// want of one device's experts at one layer is one pass. A step waits at each layer for the device
/// whose experts take longest. Nothing else overlaps.
class ClusterCost {
 public:
  struct Input {
    const ModelSpec& spec;
    Numerics numerics = Numerics::kBf16;
    Placement placement;
    std::vector<DeviceSpeed> speeds;        ///< kinds of them
    std::map<DeviceRef, std::size_t> kind;  ///< of each device
    std::shared_ptr<const Routes> routes;   ///< of the placement
  };
  /// The spec must outlive it.
  explicit ClusterCost(Input input);

  /// Every replica has `in_flight` steps of that shape.
  Round round(const StepShape& step, double in_flight) const;
  /// Mean over layers: pairs of the busiest device over the mean.
  double imbalance() const;
  /// Whether bytes travel over a wire of which no speed is known.
  bool lacks_network() const;

 private:
  struct Sum;
  void add_shards(const StepShape& step, Sum& sum) const;
  void add_stage_wires(const StepShape& step, Sum& sum) const;
  void add_experts(std::int32_t layer, const LayerRoutes& routes, const StepShape& step,
                   Sum& sum) const;
  const DeviceSpeed& speed_of(const DeviceRef& device) const;

  Input in_;
  int ranks_ = 1;
};

}  // namespace troupe
