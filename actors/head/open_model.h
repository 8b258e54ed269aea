#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/frontend/model_frontend.h"
#include "model/checkpoint.h"
#include "runtime/engine_options.h"
#include "runtime/result.h"

namespace troupe {

/// The checkpoint that a head is to serve. kInvalidArgument when its path or the name that it is
/// served by cannot travel to the workers, or stand in metrics and answers: no UTF-8, or too long.
Result<std::shared_ptr<const Checkpoint>> open_model(const EngineOptions& engine,
                                                     CheckpointUse use = CheckpointUse::kTensors);

/// The options with what the model decides where flags do not.
EngineOptions resolved(EngineOptions engine, const ModelFrontend& frontend);

/// Where the folder leads, links resolved, as a number.
/// A line for the log on what lies in the checkpoint's folder and no weight needs; empty: nothing.
std::string left_out_text(const Checkpoint& checkpoint);

std::uint64_t place_of(const std::string& folder);
/// One word for all that the tokens of a request depend on, beside itself and the numerics.
std::string journal_model(const EngineOptions& engine, const Checkpoint& checkpoint);

}  // namespace troupe
