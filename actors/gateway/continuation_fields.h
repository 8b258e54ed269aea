#pragma once

#include <nlohmann/json.hpp>

#include "actors/gateway/api_request.h"
#include "actors/gateway/field_reader.h"

namespace troupe {

/// Where a chat's prompt ends: `add_generation_prompt` and `continue_final_message` as vLLM has
/// them, and `prefix` of the last message, with its `reasoning_content`, as DeepSeek has it. The
/// conversation has been read from `messages`.
void read_continuation(FieldReader& fields, const nlohmann::json& messages, ApiRequest& out);

}  // namespace troupe
