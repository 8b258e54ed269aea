#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/interfaces.h"

namespace troupe {

/// What a replica is started with.
struct ReplicaConfig {
  std::uint32_t id = 0;
  PlacementVersion version;
  Ref<RouterInbox> router;
  /// By (stage, tp_rank): each gets every plan.
  std::vector<Ref<LayerShardInbox>> shards;
  std::int32_t stages = 1;  ///< pipeline stages: steps that may be in flight at once
  std::int32_t blocks = 0;  ///< KV blocks of every shard's pool
  std::int32_t block_size = 16;
  bool prefix_caching = true;
  std::string rows_identity;  ///< what the bits of a row depend on, beside its tokens
  std::int32_t max_num_seqs = 256;
  std::int32_t max_num_batched_tokens = 2048;
  std::uint64_t row_bytes = 1;  ///< of one row, in the largest message that it is part of
  std::int64_t max_model_len = 0;
};

}  // namespace troupe
