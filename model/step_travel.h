#pragma once

#include <cstdint>

#include "model/spec/model_spec.h"
#include "runtime/engine_options.h"
#include "runtime/numerics.h"
#include "runtime/result.h"

namespace troupe {

/// Bytes that one row of a step takes in the largest message that it is part of: the hidden rows
/// between stages, or what one expert group answers if it has all experts of the row; of one of
/// `ranks` tensor-parallel ranks, these answers with its part of the shared experts' sum.
std::uint64_t step_row_bytes(const ModelSpec& model, Numerics numerics, std::uint32_t ranks);

/// Whether steps of this model can travel between nodes at all: a single row, and the block table
/// of the longest sequence. `max_model_len` must be resolved.
Status check_steps_travel(const ModelSpec& model, const EngineOptions& engine,
                          std::int64_t max_model_len);

}  // namespace troupe
