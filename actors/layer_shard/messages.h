#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actors/base/effects.h"
#include "actors/interfaces.h"

namespace troupe {

/// Rows of a step that wait for an expert elsewhere: the output of `expert` belongs to (row, slot).
struct MissingOutput {
  std::int32_t row = 0;  ///< of the step
  std::int32_t slot = 0;
  std::int32_t expert = 0;
  std::int32_t source = 0;  ///< of the cut's rows: its expert's input
  std::uint64_t call = 0;   ///< the newest question for it; 0: none
};

/// The outputs that were asked for with one question, in the cut's order.
struct ExpertAnswer {
  std::uint64_t call = 0;
  Payload payload;  ///< wire type [outputs, hidden]
};

/// The experts' inputs of a step at a cut, as far as other devices must compute them. It goes from
/// the step's job to the LayerShard and comes back with the answers, to be used for the next cut.
struct ExpertCut {
  std::int32_t layer = 0;
  std::vector<MissingOutput> missing;  ///< by row and slot
  std::size_t row_bytes = 0;
  std::vector<std::byte> rows;        ///< wire type [rows with a missing output, hidden]
  std::vector<ExpertAnswer> answers;  ///< complete when the step goes on
  bool express = false;               ///< of an express step

  /// Calls `f(output, its row)` for all outputs that came.
  template <class F>
  void each_answered(const F& f) const {
    for (const ExpertAnswer& answer : answers) {
      std::size_t at = 0;
      for (const MissingOutput& output : missing)
        if (output.call == answer.call)
          f(output,
            Payload{answer.payload.owner, answer.payload.bytes.subspan(row_bytes * at++, row_bytes),
                    answer.payload.memory});
    }
  }
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
/// Its job -> LayerShard: what the newest StepCut asks for is here, and no answer is waited for.
struct StepFound {
  StepId step;
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
  ExpertCut cut;
};
/// The step's buffers may be used again.
struct ReleaseStep {
  StepId step;
};
/// Nobody wants the step any more: its job ends as soon as it waits for the device's experts.
struct GiveUpStep {
  StepId step;
};

/// From now on ranks deal experts out by these routes.
struct UseRoutes {
  std::shared_ptr<const ExpertRoutes> routes;
};

/// One of the tensor-parallel ranks cannot be reached, or lost a message.
struct LoseRank {
  std::string why;
};

/// Tell the Replica that a step goes on, if the device makes progress: its job runs there, or
/// waits.
struct SayProgress {
  Ref<ReplicaInbox> replica;
  StepProgress progress;
};

using ShardEffects =
    Effects<BeginStep, ResumeStep, ReleaseStep, GiveUpStep, UseRoutes, LoseRank, SayProgress>;

}  // namespace troupe
