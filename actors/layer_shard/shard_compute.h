#pragma once

#include <memory>

#include "actors/layer_shard/messages.h"
#include "model/forward/expert_ranks.h"
#include "runtime/clock.h"
#include "transport/collectives/collective.h"

namespace troupe {

/// Who hears what a ShardCompute finds, inside the Device's jobs.
class ShardNews {
 public:
  virtual ~ShardNews() = default;
  /// Experts of other devices are needed: the question travels while those here compute.
  virtual void cut(StepId step, ExpertCut cut) = 0;
  /// What was asked for at the step's cut is here: a rank that follows another placement had it.
  virtual void found(StepId step) = 0;
  /// The step is done, has failed, or waits for nothing but other devices' experts.
  virtual void computed(StepId step, ComputeOutcome outcome) = 0;
};

/// The arithmetic of a LayerShard: its forward pass and the buffers of its steps in flight. Used
/// inside the Device's jobs only. ForwardCompute is the model's; the simulation has its own.
///
/// What begin() and resume() find is told once, then or by a later job: the rows for experts on the
/// device wait in its ExpertPool, and keep `news` meanwhile.
class ShardCompute {
 public:
  virtual ~ShardCompute() = default;

  /// Before anything else, if its layers are shared by tensor-parallel ranks: how it reaches them.
  virtual void use(std::shared_ptr<Collective> ranks) = 0;
  /// Which of the ranks computes each expert, from now on.
  virtual void deal(std::shared_ptr<const ExpertRanks> ranks) = 0;
  /// False while a step has waited for other ranks for longer than limits::kExpertSilence. Any
  /// thread.
  virtual bool hears_ranks(TimePoint now) const = 0;

  /// Computes a new step from its plan until it is done or waits for other devices' experts.
  virtual void begin(const BeginStep& begin, const std::shared_ptr<ShardNews>& news) = 0;
  /// Goes on after a cut, with the outputs that came.
  virtual void resume(ResumeStep resume, const std::shared_ptr<ShardNews>& news) = 0;
  /// The step's buffers may be used for another.
  virtual void release(StepId step) = 0;
  /// If the step waits for experts on the device or for other ranks, or when it would wait for
  /// these next, it waits no more, and that it has failed is told.
  virtual void give_up(StepId step) = 0;
  /// All that waits leaves; nothing is told. What still comes is release() or nothing.
  virtual void end() = 0;
};

}  // namespace troupe
