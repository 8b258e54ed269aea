#pragma once

#include <functional>

#include "actors/company/actor_shell.h"
#include "actors/company/post.h"
#include "actors/replica/replica.h"

namespace caf {
class actor_system;
}

namespace troupe {

struct ReplicaActor {
  ActorHandle handle;
  std::function<ReplicaReport()> report;  ///< the newest; any thread
  /// A node cannot be reached any more: steps that it takes part in are run again. Any thread.
  std::function<void(NodeId)> peer_down;
};

/// Starts the actor around a Replica. The post must outlive it.
ReplicaActor spawn_replica(caf::actor_system& system, Post& post, const Address& self,
                           const ReplicaConfig& config);

}  // namespace troupe
