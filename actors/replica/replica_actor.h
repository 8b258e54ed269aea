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
};

/// Starts the actor around a Replica. The post must outlive it.
ReplicaActor spawn_replica(caf::actor_system& system, Post& post, const Address& self,
                           const ReplicaConfig& config);

}  // namespace troupe
