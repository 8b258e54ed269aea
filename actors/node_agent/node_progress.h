#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "transport/message.h"

namespace troupe {

/// The weights that a node has in memory.
struct HeldInventory {
  std::uint64_t bytes = 0;
  std::vector<LayerRange> shards;
  std::vector<HeldExperts> experts;  ///< ordered by layer
};

/// When something was sent to a peer, and when anything last came from it, whole or not.
struct PeerTraffic {
  NodeId node;
  Incarnation incarnation;
  TimePoint sent{};
  TimePoint heard{};
};

/// What the devices and replicas of this node do now. WorkerMachine takes it when it wakes the
/// agent.
struct NodeProgress {
  bool devices_alive = true;  ///< none hangs, but for accelerators beside others that go on
  std::vector<DeviceReport> devices;
  std::vector<ReplicaReport> replicas;
  std::vector<PeerTraffic> traffic;  ///< of peers that are up
  HeldInventory held;  ///< wanted while this node is no member
  ProofReport proofs;  ///< of the copies in memory
  std::string measuring = {};  ///< how far the measurement of a connection is, for people
  /// Rows that the gates sent to experts since it was last given: about once a second.
  std::vector<ExpertCounts::Layer> counts;
};

}  // namespace troupe
