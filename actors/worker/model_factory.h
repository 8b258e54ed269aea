#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "actors/device/cpu_device.h"
#include "actors/worker/compute_factory.h"
#include "runtime/ids.h"

namespace troupe {

/// The process's arithmetic: forward passes of a checkpoint's model. Specs name a CheckpointModel.
class ModelFactory final : public ComputeFactory {
 public:
  /// By their index; they must outlive what is made.
  explicit ModelFactory(std::vector<CpuDevice*> devices, std::optional<TokenId> crash_token = {})
      : devices_(std::move(devices)), crash_token_(crash_token) {}

  Result<std::unique_ptr<ShardCompute>> make_shard(ShardSpec spec) override;
  Result<MadePass> make_pass(const PassSpec& spec) override;

 private:
  const std::vector<CpuDevice*> devices_;
  const std::optional<TokenId> crash_token_;  ///< for tests
};

}  // namespace troupe
