#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "runtime/buffer.h"
#include "runtime/ids.h"
#include "runtime/numerics.h"
#include "runtime/result.h"

namespace troupe {

/// One kind of row that a layer keeps per position. MLA keeps one: the normed latent followed by
/// the rotated key part. Sparse-attention indexers will keep a second.
struct KvPoolSpec {
  std::string_view name;
  std::int32_t row = 0;  ///< numbers a position
  WireType type = WireType::kF32;
  std::size_t row_bytes() const { return static_cast<std::size_t>(row) * wire_size(type); }
};

/// The pools of every layer of a model.
struct KvLayout {
  std::vector<KvPoolSpec> pools;
  std::size_t bytes_per_token_layer() const;
};

inline constexpr int kMlaPool = 0;

KvLayout kv_layout(const ModelConfig& config, Numerics numerics);

/// What a shard's cache is sized by.
struct KvCacheSpec {
  std::int32_t first_layer = 0;
  std::int32_t last_layer = 0;  ///< exclusive
  std::int32_t num_blocks = 0;
  std::int32_t block_size = 16;  ///< positions a block
};

/// Bytes of a shard's cache, the token pool included.
std::uint64_t kv_cache_bytes(const ModelConfig& config, Numerics numerics, const KvCacheSpec& spec);

/// How many blocks of `block_size` positions the layers [first, last) can have in `bytes`.
std::int64_t blocks_for_bytes(const ModelConfig& config, Numerics numerics, const KvCacheSpec& spec,
                              std::uint64_t bytes);

/// The paged cache of one shard. Which sequence owns which block is the Replica's business; a block
/// index means the same in every shard of a replica, and in every layer and pool.
class KvCache {
 public:
  static Result<KvCache> create(const ModelConfig& config, Numerics numerics,
                                const KvCacheSpec& spec);

  const KvCacheSpec& spec() const { return spec_; }
  std::int32_t num_blocks() const { return spec_.num_blocks; }
  std::int32_t block_size() const { return spec_.block_size; }

  /// [num_blocks, block_size, row] of the pool's type, for an absolute layer index.
  std::byte* pool(std::int32_t layer, int pool_index);
  const std::byte* pool(std::int32_t layer, int pool_index) const;

  /// [num_blocks, block_size] token ids, written beside the KV rows. The last shard reads
  /// penalties' history from it, so that no step ships it.
  TokenId* tokens() { return tokens_.as<TokenId>(); }
  const TokenId* tokens() const { return tokens_.as<TokenId>(); }

 private:
  KvCache() = default;
  KvCacheSpec spec_;
  KvLayout layout_;
  std::vector<Buffer> pools_;  // [layers * pools]
  Buffer tokens_;
};

}  // namespace troupe
