#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "runtime/clock.h"
#include "transport/fabric/fabric.h"

namespace troupe::transport {

/// How an in-process network misbehaves. All choices come from the seed and the order of sends, so
/// a single-threaded test replays.
struct FaultPlan {
  std::uint64_t seed = 0;
  Duration delay_min{0};
  Duration delay_max{0};        ///< of each frame; frames of one link stay in order, links do not
  double drop_connection = 0;   ///< chance that a frame breaks its link instead of arriving
};

/// Joins several fabrics of one process, for tests: frames are handed over by reference, never
/// copied. One thread delivers; it sleeps when there is nothing to do. It must outlive its fabrics.
class InProcessHub {
 public:
  explicit InProcessHub(FaultPlan faults = {});
  ~InProcessHub();

  /// A fabric with the semantics of `Fabric`; `events` must outlive it.
  std::unique_ptr<Fabric> make(const FabricOptions& options, FabricEvents& events);

  /// Breaks the link between two nodes: both sides see the peer down.
  void cut(NodeId a, NodeId b);
  /// Waits until nothing is under way, for at most `limit`.
  bool wait_idle(Duration limit);

 private:
  friend class InProcessFabric;
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace troupe::transport
