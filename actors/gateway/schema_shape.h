#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace troupe {

/// What is no schema where a JSON schema has to have one, as a path from it with what must be
/// there: ".properties.a must be an object, or true or false."; empty: nothing. Chat templates go
/// through schemas, and do not expect anything else there.
std::string wrong_in_schema(const nlohmann::json& schema);

}  // namespace troupe
