#pragma once

#include <functional>

#include "actors/layer_shard/messages.h"

namespace troupe {

/// The arithmetic of a LayerShard: its forward pass and the buffers of its steps in flight. Used
/// inside the Device's jobs only. ForwardCompute is the model's; the simulation has its own.
class ShardCompute {
 public:
  virtual ~ShardCompute() = default;

  using OnCut = std::function<void(ExpertCut)>;
  /// Computes a new step from its plan until it is done or waits for other devices' experts. At
  /// such a cut `on_cut` is called first, so that the question travels while the local experts
  /// compute.
  virtual ComputeOutcome begin(const BeginStep& begin, const OnCut& on_cut) = 0;
  /// Goes on after a cut, with the outputs that came.
  virtual ComputeOutcome resume(const ResumeStep& resume, const OnCut& on_cut) = 0;
  /// The step's buffers may be used for another.
  virtual void release(StepId step) = 0;
};

}  // namespace troupe
