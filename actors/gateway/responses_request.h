#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"

namespace troupe {

/// Writes the messages of the conversation that ended with this response, a JSON list, or says why
/// not.
using RecallResponse =
    std::function<std::optional<ApiError>(const std::string& id, std::string& messages)>;

/// A POST to /v1/responses: it is rewritten as a POST to /v1/chat/completions that asks for the
/// same, and read as that. As parse_chat(), with the Response's names of fields.
std::optional<ApiError> parse_response(std::string_view body, const ModelFacts& model,
                                       const RecallResponse& recall, ApiRequest& out);

/// What is found wrong later with a chat, as of the Response that it was made from.
ApiError as_response_error(ApiError error);

}  // namespace troupe
