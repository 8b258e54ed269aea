#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/result.h"

namespace troupe {

/// The JSON object in a request's body. Everything else is kInvalidArgument with a message that
/// says where it broke: bad syntax, bytes that are not UTF-8, numbers that no double holds, a name
/// twice in one object, deeper than kJsonDepthMax or more values than kJsonValuesMax (both found
/// while reading, before memory is spent on the rest).
Result<nlohmann::json> parse_json_body(std::string_view body);

}  // namespace troupe
