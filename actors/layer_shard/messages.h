#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/base/effects.h"
#include "actors/interfaces.h"

namespace troupe {

/// Rows of a step that wait for an expert elsewhere: the output of `expert` belongs to (row, slot).
struct MissingOutput {
  std::int32_t row = 0;  ///< of the step
  std::int32_t slot = 0;
  std::int32_t expert = 0;
};

/// The experts' inputs of a step at a cut, as far as other devices must compute them.
struct ExpertCut {
  std::int32_t layer = 0;
  std::vector<MissingOutput> missing;  ///< by row and slot
  std::size_t row_bytes = 0;
  Payload rows;  ///< wire type [rows of the step, hidden]
};

/// An answer, to be copied into the step's run before it goes on.
struct ExpertArrival {
  std::vector<MissingOutput> outputs;  ///< in the order of the payload's rows
  Payload payload;                     ///< wire type [outputs, hidden]
};

/// How a compute job ended.
struct ComputeOutcome {
  std::optional<Error> error;
  bool done = false;                      ///< the step left the last layer of this shard
  Payload hidden;                         ///< done, and not the last stage
  std::vector<SequenceResult> sequences;  ///< done, on the last stage
  std::vector<std::uint64_t> digests;     ///< done: of the canary's rows, by layer of this shard
};

/// Its job -> LayerShard: the step reached a point where experts of other devices are needed. The
/// job goes on with the local ones meanwhile, and ends with an outcome that is not done.
struct StepCut {
  StepId step;
  ExpertCut cut;
};
/// Its job -> LayerShard: the job has ended.
struct StepComputed {
  StepId step;
  ComputeOutcome outcome;
};

// What only a LayerShard asks for; ShardHands carries it out.

/// Begin a step on the device. `hidden` is empty on the first stage.
struct BeginStep {
  MessagePtr plan;  ///< a StepPlan
  Payload hidden;
};
/// Go on with a step whose experts' outputs are all here.
struct ResumeStep {
  StepId step;
  std::vector<ExpertArrival> arrivals;
};
/// The step's buffers may be used again.
struct ReleaseStep {
  StepId step;
};

/// Tell the Replica that a step goes on, if the device makes progress: its job runs there, or
/// waits.
struct SayProgress {
  Ref<ReplicaInbox> replica;
  StepProgress progress;
};

using ShardEffects = Effects<BeginStep, ResumeStep, ReleaseStep, SayProgress>;

}  // namespace troupe
