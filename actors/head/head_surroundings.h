#pragma once

#include <cstdint>
#include <string>

#include "actors/supervisor/supervisor_effects.h"

namespace troupe {

class Supervisor;

/// What lies around a head's actors: the state folder, the log, the metrics, the program. Called
/// inside the Supervisor's turns, the first of which may come before Head's constructor returns;
/// must not block.
class HeadSurroundings {
 public:
  virtual ~HeadSurroundings() = default;
  virtual void keep_next_node(std::uint32_t next_node) = 0;
  virtual void noted(const ClusterEvent& event) = 0;
  virtual void counted(const ExpertCounts& counts) = 0;
  virtual void measured(const ImbalanceMeasured& imbalance) = 0;
  virtual std::string status(const Supervisor& supervisor) = 0;
  /// A turn has ended.
  virtual void changed(const Supervisor& supervisor) = 0;
  virtual void may_end() = 0;
};

}  // namespace troupe
