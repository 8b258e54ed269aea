#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/gateway_model.h"
#include "actors/gateway/json_writer.h"
#include "model/chat/reasoning_parser.h"
#include "runtime/generation.h"

namespace troupe {

/// Turns the events of a request into what OpenAI's API calls a completion or a chat completion:
/// one JSON object at the end, or server-sent events as they come. Not thread-safe.
class Answer {
 public:
  /// Keeps what it needs of `request`; `id` is the answer's name, such as "cmpl-1f".
  Answer(const ApiRequest& request, const GatewayModel& model, std::string id,
         std::int64_t created_unix_s);

  /// News of the prompt with this index; without an error. In a stream, what the client shall read
  /// of it is appended to `out`.
  void add(std::size_t prompt, GenerationEvent event, std::string& out);

  /// Every prompt's last event has been added.
  bool complete() const { return prompts_done_ == prompts_.size(); }

  std::string whole() const;       ///< the answer in one object; once complete
  std::string stream_end() const;  ///< the usage, if asked for, and [DONE]; once complete
  /// Ends a stream that has begun; an error cannot change its status code any more.
  static std::string stream_error(const ApiError& error);

 private:
  struct Choice {
    explicit Choice(bool opens_think) : parser(opens_think) {}
    ReasoningParser parser;
    std::string reasoning, content;   // All of it, or in a stream what is new.
    std::vector<TokenOutput> tokens;  // The same.
    FinishReason finish = FinishReason::kNone;
    std::size_t text_offset = 0;  // Characters before the next token's.
    bool begun = false;           // A chunk was sent.
  };
  struct PromptState {
    std::string text;  // For echo.
    std::vector<TokenId> tokens;
    std::vector<TokenOutput> logprobs;  // Of tokens 1, 2, ...
    bool done = false;
  };

  void take_prompt(PromptState& prompt, GenerationEvent& event);
  void take_tokens(Choice& choice, GenerationEvent& event);
  void write_chunk(std::size_t index, std::string& out);
  void begin(JsonWriter& json, std::string_view object) const;
  void write_usage(JsonWriter& json) const;
  void write_choice(JsonWriter& json, std::size_t index) const;
  void write_message(JsonWriter& json, const Choice& choice) const;
  void write_delta(JsonWriter& json, const Choice& choice) const;
  void write_chat_logprobs(JsonWriter& json, const Choice& choice) const;
  /// `with_prompt`: the echoed prompt's tokens come first. Offsets count from `offset`, in
  /// characters.
  void write_completion_logprobs(JsonWriter& json, const Choice& choice, const PromptState* prompt,
                                 std::size_t offset) const;
  void write_token_ids(JsonWriter& json, std::string_view name,
                       const std::vector<TokenId>& ids) const;
  std::string token_text(TokenId id) const;
  std::size_t characters(const Choice& choice, const PromptState* prompt) const;

  const GatewayModel& model_;
  const std::string id_;
  const std::int64_t created_;
  const bool chat_, stream_, include_usage_, echo_, drop_generated_, return_token_ids_,
      tokens_as_ids_;
  const std::int32_t logprobs_;
  const std::uint32_t n_;
  const bool reasoning_;
  std::vector<PromptState> prompts_;
  std::vector<Choice> choices_;  // Prompt-major.
  std::size_t prompts_done_ = 0;
  std::uint64_t completion_tokens_ = 0;
};

}  // namespace troupe
