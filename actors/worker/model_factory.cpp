#include "actors/worker/model_factory.h"

#include <utility>

#include "actors/expert_group/forward_pass.h"
#include "actors/layer_shard/forward_compute.h"
#include "actors/worker/checkpoint_model.h"
#include "model/kv_cache.h"
#include "model/memory_estimate.h"
#include "model/step_travel.h"

namespace troupe {
namespace {

KvCacheSpec cache_spec(const LayerRange& layers, std::int32_t blocks, std::int32_t block_size) {
  return {layers.first, layers.last + 1, blocks, block_size};
}

/// A process has no other ModelSizes than those of its FileSource.
const ModelConfig& config_of(const ModelSizes& model) {
  return static_cast<const CheckpointModel&>(model).config();
}

}  // namespace

std::uint64_t CheckpointModel::expert_bytes(Numerics numerics) const {
  return troupe::expert_bytes(config_, numerics);
}

std::uint64_t CheckpointModel::shard_bytes(Numerics numerics, const LayerRange& layers) const {
  return troupe::shard_bytes(config_, numerics, layers.first, layers.last + 1);
}

std::uint64_t CheckpointModel::cache_bytes(Numerics numerics, const LayerRange& layers,
                                           std::int32_t blocks, std::int32_t block_size) const {
  return kv_cache_bytes(config_, numerics, cache_spec(layers, blocks, block_size));
}

std::uint64_t CheckpointModel::row_bytes(Numerics numerics) const {
  return step_row_bytes(config_, numerics);
}

Result<std::unique_ptr<ShardCompute>> ModelFactory::make_shard(ShardSpec spec) {
  const ModelConfig& config = config_of(*spec.model);
  auto cache =
      KvCache::create(config, spec.numerics, cache_spec(spec.layers, spec.blocks, spec.block_size));
  if (!cache.ok()) return cache.error();
  ForwardCompute::Options options{config,
                                  spec.numerics,
                                  std::move(spec.weights),
                                  std::move(*cache),
                                  spec.last_stage,
                                  std::move(spec.cache_memory),
                                  std::move(spec.counter),
                                  std::move(spec.weight_memory),
                                  crash_token_};
  std::unique_ptr<ShardCompute> made =
      std::make_unique<ForwardCompute>(std::move(options), *devices_[spec.device->options().index]);
  return made;
}

Result<MadePass> ModelFactory::make_pass(const PassSpec& spec) {
  const ModelConfig& config = config_of(*spec.model);
  return MadePass{
      std::make_unique<ForwardPass>(config, spec.numerics, *devices_[spec.device->options().index]),
      ForwardPass::row_bytes(config, spec.numerics)};
}

}  // namespace troupe
