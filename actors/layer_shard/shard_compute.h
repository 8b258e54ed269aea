#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "actors/device/device.h"
#include "actors/layer_shard/expert_counter.h"
#include "actors/layer_shard/layer_shard.h"
#include "model/shard_forward.h"

namespace troupe {

/// The arithmetic of a LayerShard: its forward pass and the buffers of its steps in flight. Used
/// from the Device's compute thread only.
class ShardCompute {
 public:
  struct Options {
    ModelConfig model;
    Numerics numerics = Numerics::kReference;
    std::shared_ptr<const ShardWeights> weights;
    KvCache cache;
    bool last_stage = true;
    Device::Claim memory;                      ///< of weights and cache
    std::shared_ptr<ExpertCounter> counter{};  ///< of what the gates choose; may be null
  };
  ShardCompute(Options options, Device& device);

  using OnCut = std::function<void(ExpertCut)>;

  /// Computes a new step from its plan until it is done or waits for other devices' experts. At
  /// such a cut `on_cut` is called first, so that the question travels while the local experts
  /// compute.
  ComputeOutcome begin(const LayerShardActions::Begin& begin, const OnCut& on_cut);
  /// Goes on after a cut, with the outputs that came.
  ComputeOutcome resume(const LayerShardActions::Resume& resume, const OnCut& on_cut);
  /// The step's buffers may be used for another.
  void release(StepId step);

 private:
  ComputeOutcome advance(StepRun& run, const OnCut& on_cut);
  ExpertCut cut_of(StepRun& run) const;

  Options options_;
  Device& device_;
  ShardForward forward_;
  std::map<StepId, std::unique_ptr<StepRun>> runs_;
  std::vector<std::unique_ptr<StepRun>> spare_;
  std::vector<ShardForward::Missing> missing_;
};

}  // namespace troupe
