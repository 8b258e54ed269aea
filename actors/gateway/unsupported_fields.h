#pragma once

#include <nlohmann/json.hpp>

#include "actors/gateway/api_request.h"
#include "actors/gateway/field_reader.h"

namespace troupe {

/// Refuses, by name, the documented fields of OpenAI's, vLLM's and DeepSeek's APIs that would
/// change the answer in a way that Troupe cannot, unless their value asks for what is done anyway.
/// What is not listed is ignored, as other servers do, unless it is nearly what is known.
void refuse_unsupported(FieldReader& fields, bool chat);
/// The same of a Response, which also names the fields that only a chat has.
void refuse_unsupported_in_response(FieldReader& fields);
/// The same of one message of a chat; `where` is its name.
void refuse_unsupported_in_message(FieldReader& fields, const std::string& where,
                                   const nlohmann::json& message);

}  // namespace troupe
