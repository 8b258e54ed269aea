#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gateway/api_error.h"
#include "model/chat/answer_parser.h"
#include "model/chat/tool_grammar.h"
#include "model/chat/tool_style.h"
#include "runtime/generation.h"
#include "runtime/ids.h"

namespace troupe {

/// What reading a request needs to know of the model.
struct ModelFacts {
  std::string_view served_model_name;
  bool has_tokenizer = true;
  bool reasoning = false;              ///< a chat's answer begins with a block of thoughts
  ToolStyle tools = ToolStyle::kNone;  ///< how a chat's answer calls tools
  bool writes_grammars = true;  ///< else a request only says that it wants one: that may take long
};

/// A POST that generates, read and checked as far as it can be without the model: types, ranges,
/// bounds, and that it asks for nothing that Troupe does not do.
struct ApiRequest {
  bool chat = false;
  bool wants_grammar = false;  ///< for the form of its answer
  std::string format_field = {};  ///< which asks for the answer's format; empty: none does
  std::vector<GenerationRequest> prompts;  ///< one a prompt; they differ in `prompt` only
  std::string model = {};  ///< its name in the answer; empty: as it is called now
  bool stream = false;
  bool include_usage = false;  ///< a last chunk with the usage
  bool continuous_usage = false;  ///< and every chunk with its choice's so far
  bool echo = false;           ///< completions: the prompt comes before the answer
  bool return_token_ids = false;
  bool tokens_as_ids = false;  ///< tokens show as token_id:N
  std::int32_t logprobs = -1;  ///< -1: none, k: chosen and the k most likely
  std::int32_t prompt_logprobs = -1;  ///< the same of the prompt's tokens, in a list of their own
  bool include_reasoning = true;
  std::uint32_t shown = 0;  ///< of a prompt's choices the best so many (best_of); 0: all
  ReasoningStart start;     ///< how a chat's answer holds thoughts, as the end of its prompt says

  /// How a chat's answer is read for calls of tools.
  struct Calls {
    bool read = false;    ///< it may hold some
    bool list = false;    ///< as a list, since the model has no form for them
    bool several = true;  ///< or else the first is shown
    bool old = false;     ///< as `function_call`, since it was asked with `functions`
    ToolSketch sketch = {};
  };
  Calls calls;
  /// Tools whose calls a grammar holds to their form: one of these must be called, unless the
  /// choice is the model's.
  std::vector<Tool> forced;
  bool may_answer = false;  ///< it is: an answer in the format, if there is one, or any will do
  /// The field that turned thinking on or off; no name: none did.
  struct Thinking {
    std::string field = {};
    bool on = false;
  };
  Thinking thinking;

  /// The answer is an object of the Responses API (responses_request.h).
  struct Response {
    std::string echo = {};      ///< what it repeats of the request, a JSON object
    std::string messages = {};  ///< the conversation, a JSON list; empty: nothing may follow it
    std::optional<std::uint64_t> after = {};  ///< a stream is told what follows this event
  };
  std::optional<Response> response;
  bool message = false;  ///< it is a message of Anthropic's Messages API (messages_request.h)

  /// No answer is wanted but hidden states of the prompts, as the first one's pooling says.
  struct Pooled {
    bool embedding = false;  ///< in the form of /v1/embeddings, else of /pooling
    bool base64 = false;     ///< float32 numbers, little endian; else they are written out
    bool normalize = true;   ///< each is divided by its length
  };
  std::optional<Pooled> pooled;

  std::uint32_t n() const { return prompts.front().n; }
};

/// Both fill `out` and return nothing, or return what is wrong with the body (400, 404).
std::optional<ApiError> parse_completion(std::string_view body, const ModelFacts& model,
                                         ApiRequest& out);
std::optional<ApiError> parse_chat(std::string_view body, const ModelFacts& model, ApiRequest& out);

/// POST /tokenize.
struct TokenizeRequest {
  GenerationRequest of;  ///< a text, or a chat as its template has it
  bool strings = false;  ///< each token's text as well
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
