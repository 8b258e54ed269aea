#pragma once

#include <optional>
#include <string_view>

#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"

namespace troupe {

/// POST /v1/embeddings: OpenAI's, with vLLM's fields beside it. The last token's hidden state of
/// each input, normalised.
std::optional<ApiError> parse_embeddings(std::string_view body, const ModelFacts& model,
                                         ApiRequest& out);
/// POST /pooling: vLLM's. `task`: token_embed (each token's hidden state) or embed (the last's).
std::optional<ApiError> parse_pooling(std::string_view body, const ModelFacts& model,
                                      ApiRequest& out);

}  // namespace troupe
