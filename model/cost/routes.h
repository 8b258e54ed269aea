#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model/cost/device_speed.h"
#include "model/cost/expert_choice.h"
#include "runtime/placement.h"

namespace troupe {

/// How the rows of one layer reach its experts under a placement: linear in the rows of a replica's
/// step, so it is worked out once. Among an expert's copies the one on the asker's own device is
/// asked, else all alike (actors/layer_shard/expert_routes.h).
class LayerRoutes {
 public:
  /// `askers`: the devices whose shards have this layer, one for each replica.
  LayerRoutes(const LayerExperts& layer, const ExpertChances& chances,
              const std::vector<DeviceRef>& askers);

  /// What one device has to do when every asker brings a row.
  struct Part {
    double pairs = 0;                    ///< of a row and an expert
    std::vector<double> log_unasked;     ///< of each copy: ln of the chance that nobody asks it
    double rows_out = 0, rows_in = 0;    ///< rows that leave for other nodes, and that come
    double pairs_out = 0, pairs_in = 0;  ///< outputs of them that leave, and that come
    double near_rows_out = 0, near_rows_in = 0;  ///< the same between devices of a node
    double near_pairs_out = 0, near_pairs_in = 0;
    double questions = 0;  ///< devices that a row's asker asks, if this is one
  };
  const std::map<DeviceRef, Part>& parts() const { return parts_; }

  /// Copies that are asked at all when every asker brings `rows`.
  static double hits(const Part& part, double rows);
  /// What goes over the wires for rows of so many bytes.
  static WireBytes wire(const Part& part, double rows, double row_bytes);
  /// Pairs of the device with the most over the mean of all that have copies.
  double imbalance() const;
  bool leaves_device() const;

 private:
  struct Table;
  void ask(const Table& table, std::size_t asker);

  std::map<DeviceRef, Part> parts_;
};

}  // namespace troupe
