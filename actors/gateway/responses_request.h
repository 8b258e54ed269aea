#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/responses_input.h"

namespace troupe {

/// What is remembered of earlier responses, or why it is not.
struct Recall {
  /// Writes the messages of the conversation that ended with this response, a JSON list.
  std::function<std::optional<ApiError>(const std::string& id, std::string& messages)> response;
  RecallItem item;
};

/// A POST to /v1/responses: it is rewritten as a POST to /v1/chat/completions that asks for the
/// same, and read as that. As parse_chat(), with the Response's names of fields.
std::optional<ApiError> parse_response(std::string_view body, const ModelFacts& model,
                                       const Recall& recall, ApiRequest& out);

/// What is found wrong later with a chat, as of the Response that it was made from.
ApiError as_response_error(ApiError error);

}  // namespace troupe
