#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "actors/company/actor_shell.h"
#include "actors/company/post.h"
#include "actors/layer_shard/shard_compute.h"

namespace caf {
class actor_system;
}

namespace troupe {

struct LayerShardActor {
  ActorHandle handle;
  // Any thread may call these.
  /// A member cannot be reached any more: what it was asked goes to other copies, or waits.
  std::function<void(NodeId)> peer_down;
  /// It can be reached (again).
  std::function<void(NodeId)> peer_up;
  /// Devices to ask only if nobody else has the expert.
  std::function<void(std::set<DeviceRef>)> avoid;
  /// New routes; `settled` is called once, when no question by older routes is open any more.
  std::function<void(std::shared_ptr<const ExpertRoutes>, std::map<NodeId, Incarnation>,
                     std::function<void()> settled)>
      routes;
};

/// Starts the actor around a LayerShard: messages go into the machine, its jobs to the device, what
/// it sends to the post. The device and the post must outlive it.
LayerShardActor spawn_layer_shard(caf::actor_system& system, Post& post, Device& device,
                                  LayerShardConfig config, std::shared_ptr<ShardCompute> compute);

}  // namespace troupe
