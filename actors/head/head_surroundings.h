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
  virtual void keep(const KeepNextNode& next_node) = 0;
  virtual void keep(const KeepNumerics& numerics) = 0;
  virtual void keep(const KeepTensors& tensors) = 0;
  virtual void keep(const KeepCanary& canary) = 0;
  virtual void keep(const ForgetKnown&) = 0;
  virtual void keep(const KeepStandby& standby) = 0;
  /// What is known, and becomes known, of the checkpoint goes to that session, too.
  virtual void copy(const CopyKnown& copy) = 0;
  /// The Supervisor hears the answer, if there is one.
  virtual void ask(const AskStandby& standby) = 0;
  /// The Supervisor hears what was read.
  virtual void read(ReadTensors wanted) = 0;
  virtual void noted(const ClusterEvent& event) = 0;
  virtual void counted(const ExpertCounts& counts) = 0;
  virtual void measured(const ImbalanceMeasured& imbalance) = 0;
  virtual void measured(const LoadsMeasured& loads) = 0;
  virtual std::string status(const Supervisor& supervisor) = 0;
  /// A turn has ended.
  virtual void changed(const Supervisor& supervisor) = 0;
  virtual void may_end(const HeadMayEnd& end) = 0;
};

}  // namespace troupe
