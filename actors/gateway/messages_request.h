#pragma once

#include <optional>
#include <string_view>

#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"

namespace troupe {

/// A POST to /v1/messages, or to /v1/messages/count_tokens, which has no max_tokens: it is
/// rewritten as a POST to /v1/chat/completions that asks for the same, and read as that. As
/// parse_chat(), with the names of fields that Anthropic's API has. What coding tools send beside
/// them, and what changes no answer here, is taken: cache_control, context_management, metadata,
/// service_tier, and what nobody knows.
std::optional<ApiError> parse_message(std::string_view body, const ModelFacts& model,
                                      ApiRequest& out);
std::optional<ApiError> parse_count_tokens(std::string_view body, const ModelFacts& model,
                                           ApiRequest& out);

/// What is found wrong later with a chat, as of the Message that it was made from.
ApiError as_message_error(ApiError error);

}  // namespace troupe
