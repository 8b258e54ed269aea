#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace troupe {

/// Tokens that each expert of a layer computed of late, by layer: of what `troupe status --json`
/// prints. `where` names the file in errors.
Result<std::map<std::int32_t, std::vector<double>>> parse_expert_loads(const std::string& text,
                                                                       const std::string& where);

}  // namespace troupe
