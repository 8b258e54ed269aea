#pragma once

#include "actors/gateway/api_request.h"
#include "actors/gateway/field_reader.h"

namespace troupe {

/// Where a chat's prompt ends: `add_generation_prompt` and `continue_final_message` as vLLM has
/// them, and `prefix` of the last message, as DeepSeek has it. The conversation has been read.
void read_continuation(FieldReader& fields, ApiRequest& out);

}  // namespace troupe
