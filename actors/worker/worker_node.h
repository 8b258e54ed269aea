#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/base/caf_host.h"
#include "actors/control/head_link.h"
#include "actors/device/device.h"
#include "runtime/clock.h"
#include "runtime/ids.h"
#include "runtime/numerics.h"
#include "transport/fabric/fabric.h"
#include "transport/nccl/node.h"

namespace troupe {

struct WorkerOptions {
  std::string version;
  std::string head;        ///< as people write it, for messages
  std::string model_path;  ///< empty: the head's path
  std::vector<Device::Options> devices;
  /// Host memory for experts that other nodes serve, so that their loss reads no file; 0: none.
  std::uint64_t expert_tier_memory = 0;
  /// The bulk lane; none for a cluster of one node.
  std::optional<transport::FabricOptions> fabric;
  /// What rows, outputs and tensor-parallel ranks go with by NCCL; none: by the fabric.
  /// Its `on_stuck` is the node's: it ends.
  std::optional<nccl::NodeOptions> nccl = {};
  /// Told whenever this node becomes a member or ceases to be one; see WorkerSurroundings.
  std::function<void(NodeId, Incarnation)> on_life = {};
  /// Told while the node's agent takes its turns and no device hangs, once a second at least. Must
  /// not block.
  std::function<void()> on_alive = {};
  /// Told where a standby listens. Must not block for long.
  std::function<void(const std::string&)> on_other_head = {};
  std::string nvml = "libnvidia-ml.so.1";  ///< what knows how GPUs are
  /// Sees the tokens of every sequence of a step before it is computed, on a device's thread. Must
  /// not block.
  std::function<void(std::span<const TokenId>)> on_tokens = {};
};

/// A worker process: a Worker with everything that lies around it.
///
///     Worker ─┬─► HeadLink ◄──► the head
///             ├─► FabricLane ◄──► other workers
///             ├─► FileSource: threads that read and build
///             └─► CpuDevices
class WorkerNode {
 public:
  struct Exit {
    int code = 0;
    std::string reason;
  };

  /// Starts to seek the head. `host` gives the actor system and the post; it must outlive the node.
  static Result<std::unique_ptr<WorkerNode>> start(CafHost& host, WorkerOptions options,
                                                   std::unique_ptr<HeadLink> link);
  /// Ends everything at once, if it has not ended in order.
  ~WorkerNode();

  /// Leaves the cluster in order; wait() then returns. Any thread.
  void leave(const std::string& reason);
  /// Waits until the worker has ended; none when `patience` passed first.
  std::optional<Exit> wait(Duration patience);

 private:
  struct Impl;
  explicit WorkerNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
