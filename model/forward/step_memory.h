#pragma once

#include <cstdint>
#include <span>

#include "model/placement/compute_room.h"
#include "model/spec/model_spec.h"
#include "runtime/engine_options.h"
#include "runtime/numerics.h"

/// What computing takes beside weights and KV caches, in bytes: upper bounds, whichever family of
/// instructions runs. Plans count on them before anything is loaded.
namespace troupe {

/// The largest step that there may be.
struct StepLoad {
  Numerics numerics = Numerics::kReference;
  std::int64_t rows = 0;       ///< tokens of a step
  std::int64_t positions = 0;  ///< of the longest sequence
  std::int64_t in_flight = 1;  ///< steps between their cuts at a time: pipeline stages;
                               ///< an express step comes on top
  int threads = 1;             ///< of the device
};

/// The temporaries of one Forward: its Stream's arena, as large as steps can make it.
std::uint64_t forward_scratch_bytes(const ModelSpec& spec, std::int32_t first, std::int32_t last,
                                    const StepLoad& load);

/// The same of one ExpertForward, for passes of so many pairs.
std::uint64_t expert_scratch_bytes(const ModelSpec& spec, const StepLoad& load, std::int64_t pairs);

/// All that a shard of layers [first, last] takes: its temporaries, the steps in flight, the rotary
/// angles, its samplers.
std::uint64_t shard_memory_bytes(const ModelSpec& spec, std::int32_t first, std::int32_t last,
                                 const StepLoad& load);

/// All that a device's expert group takes for `pairs` that wait: their rows, outputs, temporaries.
std::uint64_t group_memory_bytes(const ModelSpec& spec, const StepLoad& load, std::int64_t pairs);

/// The largest step of a replica on devices of so many threads; max_model_len is resolved.
StepLoad step_load(const EngineOptions& engine, Numerics numerics, int threads);
/// The two as the planner wants them, of the tensor-parallel rank that takes most. `ranks` must
/// outlive it.
ComputeCosts compute_costs(std::span<const ModelSpec> ranks, const StepLoad& load);
/// Of a model that is not split.
ComputeCosts compute_costs(const ModelSpec& spec, const StepLoad& load);

}  // namespace troupe
