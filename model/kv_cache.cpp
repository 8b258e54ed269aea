#include "model/kv_cache.h"

#include <limits>
#include <new>

#include "runtime/byte_size.h"

namespace troupe {

std::size_t KvLayout::bytes_per_token_layer() const {
  std::size_t bytes = 0;
  for (const auto& pool : pools) bytes += pool.row_bytes();
  return bytes;
}

KvLayout kv_layout(const ModelConfig& config, Numerics numerics) {
  return {{KvPoolSpec{"mla", config.kv_row(), wire_type(numerics)}}};
}

namespace {

std::uint64_t bytes_per_position(const ModelConfig& config, Numerics numerics,
                                 const KvCacheSpec& spec) {
  const auto layers = static_cast<std::uint64_t>(spec.last_layer - spec.first_layer);
  return layers * kv_layout(config, numerics).bytes_per_token_layer() + sizeof(TokenId);
}

}  // namespace

std::uint64_t kv_cache_bytes(const ModelConfig& config, Numerics numerics,
                             const KvCacheSpec& spec) {
  return bytes_per_position(config, numerics, spec) * static_cast<std::uint64_t>(spec.num_blocks) *
         static_cast<std::uint64_t>(spec.block_size);
}

std::int64_t blocks_for_bytes(const ModelConfig& config, Numerics numerics, const KvCacheSpec& spec,
                              std::uint64_t bytes) {
  const std::uint64_t per_block = bytes_per_position(config, numerics, spec) *
                                  static_cast<std::uint64_t>(spec.block_size);
  const std::uint64_t blocks = bytes / per_block;
  constexpr std::uint64_t kMax = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int64_t>(blocks < kMax ? blocks : kMax);
}

Result<KvCache> KvCache::create(const ModelConfig& config, Numerics numerics,
                                const KvCacheSpec& spec) {
  if (spec.first_layer < 0 || spec.last_layer > config.num_layers ||
      spec.first_layer >= spec.last_layer)
    return invalid_argument("a KV cache needs a range of layers within the model's " +
                            std::to_string(config.num_layers) + ", but was asked for " +
                            std::to_string(spec.first_layer) + " to " +
                            std::to_string(spec.last_layer));
  if (spec.num_blocks < 1 || spec.block_size < 1)
    return invalid_argument("a KV cache needs at least one block of at least one position");
  KvCache cache;
  cache.spec_ = spec;
  cache.layout_ = kv_layout(config, numerics);
  const auto positions =
      static_cast<std::size_t>(spec.num_blocks) * static_cast<std::size_t>(spec.block_size);
  try {
    for (std::int32_t layer = spec.first_layer; layer < spec.last_layer; ++layer)
      for (const auto& pool : cache.layout_.pools)
        cache.pools_.emplace_back(positions * pool.row_bytes());
    cache.tokens_ = Buffer(positions * sizeof(TokenId));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("the KV cache needs " +
                              format_byte_size(kv_cache_bytes(config, numerics, spec)) +
                              ", more than there is; lower --kv-cache-memory");
  }
  return cache;
}

const std::byte* KvCache::pool(std::int32_t layer, int pool_index) const {
  assert(layer >= spec_.first_layer && layer < spec_.last_layer);
  const auto pools = layout_.pools.size();
  return pools_[static_cast<std::size_t>(layer - spec_.first_layer) * pools +
                static_cast<std::size_t>(pool_index)]
      .data();
}

std::byte* KvCache::pool(std::int32_t layer, int pool_index) {
  return const_cast<std::byte*>(std::as_const(*this).pool(layer, pool_index));
}

}  // namespace troupe
