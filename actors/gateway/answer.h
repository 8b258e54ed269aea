#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gateway/answer_logprobs.h"
#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/gateway_model.h"
#include "actors/gateway/json_writer.h"
#include "actors/gateway/kept_tokens.h"
#include "actors/gateway/text_offsets.h"
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

  /// Appends the next piece of the answer in one object, about kHttpPieceBytes, and lets go what it
  /// was made of; true with the last. Once complete.
  bool write_piece(std::string& out);
  std::string stream_end() const;  ///< the usage, if asked for, and [DONE]; once complete
  /// Ends a stream that has begun; an error cannot change its status code any more.
  static std::string stream_error(const ApiError& error);

 private:
  /// What the request asked for.
  struct Wishes {
    bool chat, stream, include_usage, echo, return_token_ids;
    std::int32_t logprobs;
    std::uint32_t n;
  };
  struct Choice {
    Choice(ReasoningStart start, std::int32_t alternatives)
        : parser(make_reasoning_parser(start)), tokens(alternatives) {}
    std::unique_ptr<ReasoningParser> parser;  // Null: all is content.
    std::string reasoning, content;  // All of it, or in a stream what is new.
    KeptTokens tokens;               // The same.
    TextOffsets offsets;             // At the next token's.
    FinishReason finish = FinishReason::kNone;
    bool begun = false;  // A chunk was sent.
  };
  struct PromptState {
    explicit PromptState(std::int32_t alternatives) : logprobs(alternatives) {}
    std::string text;  // For echo.
    std::vector<TokenId> tokens;
    KeptTokens logprobs;  // Of tokens 1, 2, ...
    bool done = false;
  };
  /// Where the writing of the whole answer stands.
  struct Writing {
    JsonWriter json;
    bool begun = false, choice_begun = false;
    std::size_t choice = 0;
    LogprobsPlace logprobs;
  };

  void take_prompt(PromptState& prompt, GenerationEvent& event);
  void take_tokens(Choice& choice, GenerationEvent& event);
  void write_chunk(std::size_t index, std::string& out);
  void begin(JsonWriter& json, std::string_view object) const;
  void write_usage(JsonWriter& json) const;
  bool write_choice();
  void write_message(JsonWriter& json, const Choice& choice) const;
  void write_delta(JsonWriter& json, const Choice& choice) const;
  bool write_logprobs(JsonWriter& json, Choice& choice, const PromptState* echoed,
                      LogprobsPlace& place, std::size_t bytes_max) const;

  const GatewayModel& model_;
  const std::string id_;
  const std::int64_t created_;
  const Wishes wishes_;
  const TokenNames names_;
  std::vector<PromptState> prompts_;
  std::vector<Choice> choices_;  // Prompt-major.
  std::size_t prompts_done_ = 0;
  std::uint64_t completion_tokens_ = 0, cached_tokens_ = 0;
  Writing writing_;
};

}  // namespace troupe
