#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "actors/base/effects.h"
#include "actors/expert_group/expert_pass.h"
#include "actors/layer_shard/layer_shard_config.h"
#include "actors/layer_shard/shard_compute.h"
#include "actors/replica/replica_config.h"
#include "actors/replica/report_slot.h"
#include "model/expert_set.h"

namespace troupe {

// What Serving asks for; ActorHands carries it out.

struct StartGroup {
  Ref<ExpertGroupInbox> self;
  std::uint32_t device = 0;
  std::size_t row_bytes = 0;
  std::unique_ptr<ExpertPass> pass;
};
struct StartShard {
  Ref<LayerShardInbox> self;
  LayerShardConfig config;
  std::uint32_t device = 0;
  std::unique_ptr<ShardCompute> compute;
};
struct StartReplica {
  Ref<ReplicaInbox> self;
  ReplicaConfig config;
  std::shared_ptr<ReportSlot> reports;
};
/// Ended follows, once what it held is free.
struct EndActor {
  Address actor;
};
/// From now on that device hosts these experts, and its own shards use those of the version in
/// force.
struct PublishExperts {
  std::uint32_t device = 0;
  std::shared_ptr<const ExpertSet> experts;
  std::shared_ptr<const ExpertSet> serving;
};

}  // namespace troupe
