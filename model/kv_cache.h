#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/accelerator.h"
#include "kernels/attention.h"
#include "model/spec/model_spec.h"
#include "runtime/buffer.h"
#include "runtime/ids.h"
#include "runtime/numerics.h"
#include "runtime/result.h"

namespace troupe {

/// What a shard's cache is sized by.
struct KvCacheSpec {
  std::int32_t first_layer = 0;
  std::int32_t last_layer = 0;  ///< included
  std::int32_t num_blocks = 0;
  std::int32_t block_size = 16;  ///< positions a block
};

/// Bytes of a shard's cache, the token pool included.
std::uint64_t kv_cache_bytes(const ModelSpec& model, Numerics numerics, const KvCacheSpec& spec);

/// The paged cache of one shard. Which sequence owns which block is the Replica's business; a block
/// index means the same in every shard of a replica, and in every layer and pool.
class KvCache {
 public:
  /// `device`: whose memory the pools lie in; null: the host's, which are zero.
  static Result<KvCache> create(const ModelSpec& model, Numerics numerics, const KvCacheSpec& spec,
                                kernels::Accelerator* device = nullptr);

  const KvCacheSpec& spec() const { return spec_; }
  std::int32_t num_blocks() const { return spec_.num_blocks; }
  std::int32_t block_size() const { return spec_.block_size; }

  /// One of a layer's pools (LayerSpec::kv), for an absolute layer index.
  kernels::KvPool pool(std::int32_t layer, int pool_index);

  /// [num_blocks, block_size] token ids, written beside the KV rows. The last shard reads
  /// penalties' history from it, so that no step ships it.
  TokenId* tokens() { return tokens_.as<TokenId>(); }
  const TokenId* tokens() const { return tokens_.as<TokenId>(); }

 private:
  KvCache() = default;
  struct Pool {
    std::shared_ptr<std::byte> data;
    std::int32_t row = 0;
  };
  KvCacheSpec spec_;
  DType dtype_ = DType::kBf16;
  std::vector<std::vector<Pool>> layers_;  // [layers][pools]
  Buffer tokens_;
};

}  // namespace troupe
