#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/company/post.h"
#include "actors/device/device.h"
#include "actors/node_agent/head_link.h"
#include "actors/node_agent/node_agent.h"
#include "runtime/clock.h"
#include "transport/fabric/fabric.h"

namespace caf {
class actor_system;
}

namespace troupe {

struct WorkerOptions {
  std::string version;
  std::string head;        ///< as people write it, for messages
  std::string model_path;  ///< empty: the head's path
  std::vector<Device::Options> devices;
  /// Families offered to the head; a test may offer fewer than the processor has.
  std::vector<Numerics> numerics = supported_numerics();
  /// Host memory for experts that other nodes serve, so that their loss reads no file; 0: none.
  std::uint64_t expert_tier_memory = 0;
  /// The bulk lane; none for a cluster of one node.
  std::optional<transport::FabricOptions> fabric;
};

/// A worker: the NodeAgent's actor and everything that lives under it: devices, bulk lane, weights,
/// and the actors of the placement's versions.
///
///     HeadLink ◄──► NodeAgent ──► loader thread ──► weights
///                      │ └──────► Serving: ExpertGroups, LayerShards, Replicas ──► Devices
///                      └────────► Fabric ◄──► other workers
class WorkerNode {
 public:
  struct Exit {
    int code = 0;
    std::string reason;
  };

  /// Starts to seek the head. `system` and `post` must outlive it.
  static Result<std::unique_ptr<WorkerNode>> start(caf::actor_system& system, Post& post,
                                                   WorkerOptions options,
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
