#pragma once

#include <vector>

#include "actors/gateway/api_request.h"
#include "actors/gateway/field_reader.h"

namespace troupe {

/// Reads `messages`, with all that a chat template may ask a message for. Empty if something is
/// wrong.
std::vector<ChatMessage> read_messages(FieldReader& fields, const ModelFacts& model);

}  // namespace troupe
