#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/engine_options.h"

namespace troupe {

/// "1048576 bytes (1 MiB)".
std::string bytes_text(std::uint64_t bytes);

/// What helps where memory is short for experts, as a sentence. Only flags are named whose change
/// is possible and could help.
std::string advice_for_experts(const EngineOptions& engine);

struct ShardNeed {
  std::size_t layers;            ///< of the model
  std::uint64_t sequence_bytes;  ///< of KV cache that the longest sequence takes in the shard
  std::uint64_t lacking;         ///< bytes
};
/// The same for a shard.
std::string advice_for_shards(const EngineOptions& engine, const ShardNeed& need);

}  // namespace troupe
