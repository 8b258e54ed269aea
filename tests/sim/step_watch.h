#pragma once

#include <map>

#include "transport/message.h"

namespace troupe::sim {

class World;

/// Sees every message as its receiver takes it. For each shard: a step is planned once and within
/// its bounds.
class StepWatch {
 public:
  explicit StepWatch(World& world) : world_(world) {}

  void see(const Envelope& envelope);

 private:
  void see_plan(const Address& shard, const StepPlanBody& plan);

  World& world_;
  std::map<Address, StepId> newest_;  // that each shard was told
};

}  // namespace troupe::sim
