#include "actors/worker/model_factory.h"

#include <utility>

#include "actors/expert_group/forward_pass.h"
#include "actors/layer_shard/forward_compute.h"
#include "actors/worker/checkpoint_model.h"
#include "model/kv_cache.h"

namespace troupe {
namespace {

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
  auto cache = KvCache::create(
      *model, spec.numerics, CheckpointModel::cache_spec(spec.layers, spec.blocks, spec.block_size),
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
                                  spec.last_stage ? model_of(*spec.model).grammars() : nullptr,
                                  std::move(spec.weight_memory),
                                  on_tokens_};
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
