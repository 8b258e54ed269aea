#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gateway/api_error.h"
#include "runtime/generation.h"
#include "runtime/ids.h"

namespace troupe {

/// What reading a request needs to know of the model.
struct ModelFacts {
  std::string_view served_model_name;
  bool has_tokenizer = true;
  bool reasoning = false;  ///< a chat's answer begins with a block of thoughts
};

/// A POST to /v1/completions or /v1/chat/completions, read and checked as far as it can be without
/// the model: types, ranges, bounds, and that it asks for nothing that Troupe does not do.
struct ApiRequest {
  bool chat = false;
  std::vector<GenerationRequest> prompts;  ///< one a prompt; they differ in `prompt` only
  bool stream = false;
  bool include_usage = false;  ///< a last chunk with the usage
  bool echo = false;           ///< completions: the prompt comes before the answer
  bool return_token_ids = false;
  bool tokens_as_ids = false;  ///< tokens show as token_id:N
  std::int32_t logprobs = -1;  ///< -1: none, k: chosen and the k most likely

  std::uint32_t n() const { return prompts.front().n; }
};

/// Both fill `out` and return nothing, or return what is wrong with the body (400, 404).
std::optional<ApiError> parse_completion(std::string_view body, const ModelFacts& model,
                                         ApiRequest& out);
std::optional<ApiError> parse_chat(std::string_view body, const ModelFacts& model, ApiRequest& out);

/// POST /tokenize.
struct TokenizeRequest {
  std::string prompt;
  bool add_special_tokens = true;
};
std::optional<ApiError> parse_tokenize(std::string_view body, const ModelFacts& model,
                                       TokenizeRequest& out);

/// POST /detokenize.
struct DetokenizeRequest {
  std::vector<TokenId> tokens;
};
std::optional<ApiError> parse_detokenize(std::string_view body, const ModelFacts& model,
                                         DetokenizeRequest& out);

}  // namespace troupe
