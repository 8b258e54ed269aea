#pragma once

#include <functional>
#include <memory>

#include "actors/company/actor_shell.h"
#include "actors/company/post.h"
#include "actors/layer_shard/shard_compute.h"

namespace caf {
class actor_system;
}

namespace troupe {

struct LayerShardActor {
  ActorHandle handle;
  /// Tells the shard that a member cannot be reached any more. Any thread.
  std::function<void(NodeId)> peer_down;
};

/// Starts the actor around a LayerShard: messages go into the machine, its jobs to the device, what
/// it sends to the post. The device and the post must outlive it.
LayerShardActor spawn_layer_shard(caf::actor_system& system, Post& post, Device& device,
                                  LayerShardConfig config, std::shared_ptr<ShardCompute> compute);

}  // namespace troupe
