#pragma once

#include <cstdint>
#include <vector>

#include "runtime/engine_options.h"
#include "runtime/ids.h"
#include "runtime/placement.h"
#include "runtime/tensor_rank.h"

/// What a worker has in memory, and serves, when it joins.
namespace troupe {

/// Layers `first` to `last`, both included, as one tensor-parallel rank has them.
struct LayerRange {
  std::int32_t first = 0;
  std::int32_t last = 0;
  TensorRank rank = {};
  bool operator==(const LayerRange&) const = default;
};
/// Routed experts of one layer that a node has in memory.
struct HeldExperts {
  std::int32_t layer = 0;
  std::vector<std::int32_t> experts;  ///< rising
  bool operator==(const HeldExperts&) const = default;
};

/// What a worker serves still of an earlier head, which is gone: its actors live, and have their KV
/// caches.
struct HeldRole {
  Incarnation incarnation;   ///< of that life, which may go on
  Placement placement;       ///< the version in force here
  EngineOptions engine;      ///< of that head; steps as its replicas have them
  std::vector<NodeId> lost;  ///< of that placement, as far as this worker has heard
  bool operator==(const HeldRole&) const = default;
};

}  // namespace troupe
