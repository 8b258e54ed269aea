#pragma once

#include <string>
#include <string_view>

#include "actors/gateway/field_reader.h"

namespace troupe {

/// Reads `input` of a Response: a text, or items (message, function_call, function_call_output,
/// reasoning). What comes back is a chat's messages, a JSON list. Calls and the message before them
/// are one message; thoughts are left out, for chat templates do so with earlier ones.
std::string read_response_input(FieldReader& fields);

/// One JSON list with what is in both.
std::string join_json_lists(std::string_view first, std::string_view second);

}  // namespace troupe
