#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/device/cpu_device.h"
#include "actors/layer_shard/expert_counter.h"
#include "actors/layer_shard/shard_compute.h"
#include "model/shard_forward.h"

namespace troupe {

/// The model's ShardCompute: the forward pass of a range of layers.
class ForwardCompute final : public ShardCompute {
 public:
  struct Options {
    ModelConfig model;
    Numerics numerics = Numerics::kReference;
    std::shared_ptr<const ShardWeights> weights;
    KvCache cache;
    bool last_stage = true;
    Device::Claim cache_memory;
    std::shared_ptr<ExpertCounter> counter{};  ///< of what the gates choose; may be null
    /// Shared with other shards of the same layers on this device; may be null.
    std::shared_ptr<const Device::Claim> weight_memory{};
    std::optional<TokenId> crash_token{};  ///< for tests: a step that has it crashes the process
  };
  ForwardCompute(Options options, CpuDevice& device);

  ComputeOutcome begin(const BeginStep& begin, const OnCut& on_cut) override;
  ComputeOutcome resume(const ResumeStep& resume, const OnCut& on_cut) override;
  void release(StepId step) override;

 private:
  ComputeOutcome advance(StepRun& run, const OnCut& on_cut);
  ExpertCut cut_of(StepRun& run) const;

  Options options_;
  CpuDevice& device_;
  ShardForward forward_;
  std::map<StepId, std::unique_ptr<StepRun>> runs_;
  std::vector<std::unique_ptr<StepRun>> spare_;
  std::vector<ShardForward::Missing> missing_;
};

}  // namespace troupe
