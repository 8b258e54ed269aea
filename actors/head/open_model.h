#pragma once

#include <memory>

#include "model/checkpoint.h"
#include "runtime/engine_options.h"
#include "runtime/result.h"

namespace troupe {

/// The checkpoint that a head is to serve. kInvalidArgument when its path or the name that it is
/// served by cannot travel to the workers, or stand in metrics and answers: no UTF-8, or too long.
Result<std::shared_ptr<const Checkpoint>> open_model(const EngineOptions& engine);

}  // namespace troupe
