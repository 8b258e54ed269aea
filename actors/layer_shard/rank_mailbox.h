#pragma once

#include <memory>
#include <optional>

#include "actors/base/post.h"
#include "actors/layer_shard/layer_shard_config.h"
#include "transport/collectives/collective.h"
#include "transport/nccl/node.h"

namespace troupe {

/// Where the jobs of a shard get what its tensor-parallel ranks tell them.
Address rank_address(const Ref<LayerShardInbox>& shard);

/// How they reach these ranks: by messages of this post, which brings theirs from now on, until
/// rank_address() is detached, and by NCCL if there is an `nccl` and the config asks. What cannot
/// be delivered comes back to the shard. The post must outlive it.
std::shared_ptr<Collective> reach_ranks(Post& post, const LayerShardConfig& config,
                                        const std::optional<nccl::Carrier>& nccl = std::nullopt);

}  // namespace troupe
