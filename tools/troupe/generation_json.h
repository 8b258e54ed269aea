#pragma once

#include <optional>
#include <string>

#include "actors/api/cluster.h"

namespace troupe::cli {

/// The object of `troupe generate --json`; log-probabilities in the shortest form that restores the
/// float32.
std::string generation_json(const Generation& generation, bool prompt_logprobs);

}  // namespace troupe::cli
