#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/shell.h"
#include "actors/worker/compute_factory.h"
#include "actors/worker/worker_hands.h"

namespace troupe {

struct WorkerSetup {
  /// Its devices, bulk address and description are filled in from `around`.
  NodeAgentOptions agent;
  WorkerSurroundings around;
  ComputeFactory* factory = nullptr;
};

/// A worker in a host: the NodeAgent's actor, and what comes in from head and peers. WorkerNode
/// makes one in a process; the simulation makes one of its own.
///
///     HeadLink ─┐                  ┌─► WeightSource ─► PieceRead, PartRead, PartBuilt ─┐
///     BulkLane ─┼─► WorkerMachine ─┼─► ExpertGroups, LayerShards, Replicas ─► Devices  │
///     Device   ─┘        ▲         └─► HeadLink, BulkLane                              │
///                        └─────────────────────────────────────────────────────────────┘
class Worker final : private BulkEvents {
 public:
  using AgentShell = Shell<WorkerMachine, WorkerHands>;

  /// Starts to seek the head. `host` and what `setup` refers to must outlive the worker's actors.
  Worker(Host& host, WorkerSetup setup);
  /// As end(). The lanes must be gone before this object.
  ~Worker();
  /// Ends the agent; the host waits for it. What the lanes say from then on is dropped.
  void end();

  /// The agent's address in this process, whatever node it is in the cluster.
  const Ref<NodeAgentInbox>& agent() const { return agent_; }
  /// Leaves the cluster in order. Any thread.
  void leave(const std::string& reason);

 private:
  void on_head_message(Envelope envelope);
  void find_head(Incarnation head);
  void on_envelope(NodeId node, Incarnation incarnation, Envelope envelope) override;
  void on_peer_up(NodeId node, Incarnation incarnation) override;
  void on_peer_down(NodeId node, Incarnation incarnation, LinkEnd end) override;

  Host& host_;  ///< used until end()
  Post& post_;
  const Ref<NodeAgentInbox> agent_;
  const WorkerSurroundings around_;  ///< with the meter
  std::mutex mutex_;
  bool ended_ = false;  // guarded by mutex_
  Incarnation head_;    // guarded by mutex_; where the lane leads to
};

}  // namespace troupe
