#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "actors/device/cpu_device.h"
#include "actors/worker/compute_factory.h"
#include "model/forward/experts.h"
#include "runtime/ids.h"

namespace troupe {

/// The process's arithmetic: forward passes of a checkpoint's model. Specs name a CheckpointModel.
class ModelFactory final : public ComputeFactory {
 public:
  /// By their index; they must outlive what is made. `on_tokens`: as WorkerOptions.
  explicit ModelFactory(std::vector<CpuDevice*> devices,
                        std::function<void(std::span<const TokenId>)> on_tokens = {})
      : devices_(std::move(devices)), experts_(devices_.size()), on_tokens_(std::move(on_tokens)) {}

  Result<std::unique_ptr<ShardCompute>> make_shard(ShardSpec spec) override;
  Result<MadePass> make_pass(const PassSpec& spec) override;

 private:
  Result<std::unique_ptr<ShardCompute>> make_shard_on(CpuDevice& device, ShardSpec spec);
  std::shared_ptr<ExpertForward> experts_on(const std::shared_ptr<const ModelSpec>& model,
                                            Numerics numerics, CpuDevice& device);

  /// What passes on a device compute with, as long as an actor there uses it.
  struct Experts {
    std::weak_ptr<const ModelSpec> model;
    Numerics numerics = Numerics::kReference;
    std::weak_ptr<ExpertForward> forward;
  };

  const std::vector<CpuDevice*> devices_;
  std::mutex mutex_;
  std::vector<Experts> experts_;  // guarded by mutex_; by device
  const std::function<void(std::span<const TokenId>)> on_tokens_;
};

}  // namespace troupe
