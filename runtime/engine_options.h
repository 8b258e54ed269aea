#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/numerics.h"
#include "runtime/result.h"

namespace troupe {

/// The engine flags of `up`, `head` and `generate`; the head's values hold for the whole cluster.
struct EngineOptions {
  std::string model;                             ///< checkpoint folder
  std::string served_model_name;                 ///< default: the folder's name
  std::int64_t max_model_len = 0;                ///< 0: the model's own
  std::int32_t max_num_seqs = 256;               ///< sequences in one step of a replica
  std::int32_t max_num_batched_tokens = 2048;    ///< tokens in one step of a replica
  std::int32_t block_size = 16;                  ///< KV positions a block
  std::uint64_t kv_cache_memory = 0;  ///< bytes a shard; 0: from what the device has left
  std::optional<std::uint64_t> seed;             ///< default seed of requests that have none
  std::int32_t request_timeout_s = 600;
  std::int32_t tensor_parallel_size = 1;         ///< ranks of a stage: 1, 2, 4 or 8
  std::int32_t pipeline_parallel_size = 1;       ///< stages of a replica
  std::int32_t data_parallel_size = 0;           ///< 0: as many replicas as there are devices for
  std::int32_t redundant_experts = 0;            ///< extra copies of experts, a layer
  std::int32_t min_devices = 1;
  bool prefix_caching = true;  ///< rows of prompts that begin alike are computed once
  std::optional<Numerics> numerics;              ///< none: bf16, if every member has it

  bool operator==(const EngineOptions&) const = default;
};

/// --tensor-parallel-size on its own.
Status check_tensor_size(std::int32_t size);

/// Whether every value can be used; the error names the one that cannot, as its flag is called.
Status check(const EngineOptions& options);

}  // namespace troupe
