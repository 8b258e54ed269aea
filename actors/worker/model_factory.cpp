#include "actors/worker/model_factory.h"

#include <utility>

#include "actors/expert_group/forward_pass.h"
#include "actors/layer_shard/forward_compute.h"
#include "actors/worker/checkpoint_model.h"
#include "model/kv_cache.h"
#include "model/spec/sizes.h"
#include "model/spec/split_model.h"
#include "model/step_travel.h"

namespace troupe {
namespace {

KvCacheSpec cache_spec(const LayerRange& layers, std::int32_t blocks, std::int32_t block_size) {
  return {layers.first, layers.last, blocks, block_size};
}

/// A process has no other ModelSizes than those of its FileSource.
const CheckpointModel& model_of(const ModelSizes& model) {
  return static_cast<const CheckpointModel&>(model);
}

/// What cannot be put on a device takes the device out.
template <class Work>
auto on_device(CpuDevice& device, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const kernels::AcceleratorFailed& e) {
    device.fail(e.what());
    return unavailable("The device has failed: " + device.failed() + ".");
  }
}

}  // namespace

std::shared_ptr<const ModelSpec> CheckpointModel::spec(TensorRank rank) const {
  if (rank.alone()) return spec_;
  std::lock_guard lock(mutex_);
  auto& part = parts_[rank];
  if (!part) part = std::make_shared<const ModelSpec>(split_model(*spec_, rank));
  return part;
}

std::uint64_t CheckpointModel::expert_bytes(Numerics numerics) const {
  return troupe::expert_bytes(*spec_, numerics);
}

std::uint64_t CheckpointModel::shard_bytes(Numerics numerics, const LayerRange& layers) const {
  return troupe::shard_bytes(*spec(layers.rank), numerics, layers.first, layers.last);
}

std::uint64_t CheckpointModel::cache_bytes(Numerics numerics, const LayerRange& layers,
                                           std::int32_t blocks, std::int32_t block_size) const {
  return kv_cache_bytes(*spec(layers.rank), numerics, cache_spec(layers, blocks, block_size));
}

std::uint64_t CheckpointModel::row_bytes(Numerics numerics) const {
  return step_row_bytes(*spec_, numerics);
}

/// Works of one pass share it.
std::shared_ptr<ExpertForward> ModelFactory::experts_on(
    const std::shared_ptr<const ModelSpec>& model, Numerics numerics, CpuDevice& device) {
  std::lock_guard lock(mutex_);
  Experts& known = experts_[device.options().index];
  auto forward = known.forward.lock();
  if (forward && known.model.lock() == model && known.numerics == numerics) return forward;
  forward = std::make_shared<ExpertForward>(*model, device.stream(numerics));
  known = {model, numerics, forward};
  return forward;
}

Result<std::unique_ptr<ShardCompute>> ModelFactory::make_shard(ShardSpec spec) {
  CpuDevice& device = *devices_[spec.device->options().index];
  return on_device(device, [&] { return make_shard_on(device, std::move(spec)); });
}

Result<std::unique_ptr<ShardCompute>> ModelFactory::make_shard_on(CpuDevice& device,
                                                                  ShardSpec spec) {
  const std::shared_ptr<const ModelSpec> model = model_of(*spec.model).spec(spec.layers.rank);
  auto cache =
      KvCache::create(*model, spec.numerics, cache_spec(spec.layers, spec.blocks, spec.block_size),
                      device.accelerator().get());
  if (!cache.ok()) return cache.error();
  ForwardCompute::Options options{model,
                                  spec.numerics,
                                  std::move(spec.weights),
                                  std::move(*cache),
                                  spec.last_stage,
                                  std::move(spec.cache_memory),
                                  experts_on(model_of(*spec.model).spec(), spec.numerics, device),
                                  std::move(spec.counter),
                                  std::move(spec.weight_memory),
                                  crash_token_};
  std::unique_ptr<ShardCompute> made = std::make_unique<ForwardCompute>(std::move(options), device);
  return made;
}

Result<MadePass> ModelFactory::make_pass(const PassSpec& spec) {
  const auto& model = model_of(*spec.model).spec();
  CpuDevice& device = *devices_[spec.device->options().index];
  return MadePass{std::make_unique<ForwardPass>(model, spec.numerics, device,
                                                experts_on(model, spec.numerics, device)),
                  ForwardPass::row_bytes(*model, spec.numerics)};
}

}  // namespace troupe
