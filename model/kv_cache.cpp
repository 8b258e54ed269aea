#include "model/kv_cache.h"

#include <cassert>
#include <new>
#include <string>
#include <utility>

#include "runtime/byte_size.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

std::shared_ptr<std::byte> pool_memory(kernels::Accelerator* device, std::size_t bytes) {
  if (device != nullptr)
    return device->memory(bytes, limits::kDeviceMemoryPatience, [] { return true; });
  auto buffer = std::make_shared<Buffer>(bytes);
  std::byte* const data = buffer->data();
  return {std::move(buffer), data};
}

}  // namespace

std::uint64_t kv_cache_bytes(const ModelSpec& model, Numerics numerics, const KvCacheSpec& spec) {
  std::uint64_t numbers = 0;
  for (std::int32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer)
    for (const KvPoolSpec& pool : model.layers[static_cast<std::size_t>(layer)].kv)
      numbers += static_cast<std::uint64_t>(pool.row);
  const std::uint64_t a_position = numbers * dtype_size(kv_type(numerics)) + sizeof(TokenId);
  return a_position * static_cast<std::uint64_t>(spec.num_blocks) *
         static_cast<std::uint64_t>(spec.block_size);
}

Result<KvCache> KvCache::create(const ModelSpec& model, Numerics numerics, const KvCacheSpec& spec,
                                kernels::Accelerator* device) {
  if (spec.first_layer < 0 || spec.last_layer >= model.num_layers() ||
      spec.first_layer > spec.last_layer)
    return invalid_argument("a KV cache needs a range of layers within the model's " +
                            std::to_string(model.num_layers()) + ", but was asked for " +
                            std::to_string(spec.first_layer) + " to " +
                            std::to_string(spec.last_layer));
  if (spec.num_blocks < 1 || spec.block_size < 1)
    return invalid_argument("a KV cache needs at least one block of at least one position");
  KvCache cache;
  cache.spec_ = spec;
  cache.dtype_ = kv_type(numerics);
  const auto positions =
      static_cast<std::size_t>(spec.num_blocks) * static_cast<std::size_t>(spec.block_size);
  try {
    for (std::int32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
      auto& pools = cache.layers_.emplace_back();
      for (const KvPoolSpec& pool : model.layers[static_cast<std::size_t>(layer)].kv)
        pools.push_back({pool_memory(device, positions * static_cast<std::size_t>(pool.row) *
                                                 dtype_size(cache.dtype_)),
                         pool.row});
    }
    cache.tokens_ = Buffer(positions * sizeof(TokenId));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("the KV cache needs " +
                              format_byte_size(kv_cache_bytes(model, numerics, spec)) +
                              ", more than there is; lower --kv-cache-memory");
  }
  return cache;
}

kernels::KvPool KvCache::pool(std::int32_t layer, int pool_index) {
  assert(layer >= spec_.first_layer && layer <= spec_.last_layer);
  Pool& pool = layers_[static_cast<std::size_t>(layer - spec_.first_layer)]
                      [static_cast<std::size_t>(pool_index)];
  return {pool.data.get(), dtype_, spec_.block_size, pool.row};
}

}  // namespace troupe
