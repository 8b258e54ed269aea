#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/frontend/named_requests.h"
#include "actors/gateway/answer_logprobs.h"
#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/gateway_model.h"
#include "actors/gateway/item_output.h"
#include "actors/gateway/json_writer.h"
#include "actors/gateway/pooled_answer.h"
#include "actors/gateway/text_offsets.h"
#include "actors/gateway/text_tokens.h"
#include "actors/gateway/thought_counter.h"
#include "actors/gateway/token_counts.h"
#include "actors/gateway/token_texts.h"
#include "actors/router/stop_matcher.h"
#include "model/chat/answer_parser.h"
#include "model/chat/json_extent.h"
#include "runtime/generation.h"
#include "runtime/kept_tokens.h"

namespace troupe {

/// Makes of a request's events what OpenAI's API calls a completion, a chat completion, a Response
/// or a list of embeddings, and Anthropic's a Message: one JSON object at the end, or server-sent
/// events as they come. Of a request that is found again, as far as it is there, and from where its
/// client stands. Not thread-safe.
class Answer {
 public:
  using State = NamedRequest::State;

  /// Keeps what it needs of `request`; `id` is the answer's name, such as "cmpl-1f".
  Answer(const ApiRequest& request, const GatewayModel& model, std::string id,
         std::int64_t created_unix_s);

  /// Before the first news: it is an earlier one's.
  void set_name(std::string id, std::int64_t created_unix_s);

  // Before the first news:
  /// The object says what state its prompts are in.
  void show_status(std::vector<State> states) { states_ = std::move(states); }
  /// A client has so many tokens of each choice: what is added follows them, and every event says
  /// how many the client has with it (`id`).
  void resume(TokenCounts had);
  /// Whether what follows cannot be written without what the client has: then the same news from
  /// the beginning go to add_past(), and past_is_there() is called.
  bool needs_past() const;
  void add_past(std::size_t prompt, GenerationEvent event);
  void past_is_there();

  /// News of the prompt with this index; without an error. In a stream, what the client shall read
  /// of it is appended to `out`.
  void add(std::size_t prompt, GenerationEvent event, std::string& out);

  /// The prompt's end, if it is an error that the object shows.
  void fail(std::size_t prompt, ApiError error);

  /// Every prompt's last event has been added.
  bool complete() const { return prompts_done_ == prompts_.size(); }

  /// How many there were: of prompts, and of all choices so far.
  std::pair<std::uint64_t, std::uint64_t> tokens() const;

  /// Appends the next piece of the answer in one object, about kHttpPieceBytes, and lets go what it
  /// was made of; true with the last. Once complete.
  bool write_piece(std::string& out);
  std::string stream_end();  ///< the usage, if asked for, and [DONE]; once complete
  /// Ends a stream that has begun; an error cannot change its status code any more.
  std::string stream_error(const ApiError& error);
  /// Of a Response: what it said, as an assistant's message of a chat.
  void write_chat_message(JsonWriter& json) const { items_->write_chat_message(json); }

 private:
  /// What the request asked for.
  struct Wishes {
    bool chat, stream, include_usage, continuous_usage, echo, return_token_ids, reasoning;
    bool several_calls, old_calls;
    std::int32_t logprobs, prompt_logprobs;
    std::uint32_t n, shown;
    std::uint32_t min_tokens;
    bool stop_in_text;
  };
  struct Choice {
    Choice(const AnswerForm& form, std::int32_t alternatives)
        : parser(make_answer_parser(form)), thoughts(form), tokens(alternatives) {}
    std::unique_ptr<AnswerParser> parser;  // Null: all is content.
    ThoughtCounter thoughts;
    std::string reasoning, content;  // All of it, or in a stream what is new.
    std::vector<CallDelta> calls;    // The same.
    KeptTokens tokens;               // The same.
    TextOffsets offsets;             // At the next token's.
    std::uint32_t count = 0;         // Of all its tokens.
    double logprob_sum = 0;          // Of all, if the best are looked for.
    FinishReason finish = FinishReason::kNone;
    bool begun = false;           // A chunk was sent.
    bool called = false;          // A tool.
    JsonExtent arguments;         // Of its last call.
    bool arguments_open = false;  // They have begun, and have no end.
  };
  struct PromptState {
    explicit PromptState(std::int32_t alternatives) : logprobs(alternatives) {}
    std::string text;  // For echo.
    std::vector<TokenId> tokens;
    KeptTokens logprobs;  // Of tokens 1, 2, ...
    std::uint64_t cached_tokens = 0;
    bool done = false;
  };
  /// Where the writing of the whole answer stands, and that of a choice.
  struct WritingChoice {
    bool begun = false, logprobs_done = false;
    LogprobsPlace logprobs, prompt_logprobs;
  };
  struct Writing {
    JsonWriter json;
    bool begun = false, choices_done = false;
    std::string_view status;
    std::vector<std::size_t> choices;  // That are shown, in their order.
    std::size_t index = 0;             // Of the one that is next.
    WritingChoice choice;
    LogprobsPlace prompt_logprobs;
  };

  /// How many tokens.
  struct Usage {
    std::uint64_t prompt = 0, completion = 0, cached = 0, reasoning = 0;
  };

  void take_prompt(PromptState& prompt, GenerationEvent& event);
  void take_tokens(Choice& choice, GenerationEvent& event);
  void look_at(Choice& choice, TokenId token);
  void take_text(Choice& choice, std::string_view text, bool end);
  void take_delta(Choice& choice, AnswerDelta delta) const;
  void begin_items(const ApiRequest& request);
  void take_items_tokens(Choice& choice, const GenerationEvent& event);
  void take_items_text(Choice& choice, std::string_view text);
  void take_items_delta(AnswerDelta delta, std::size_t held);
  void end_items(Choice& choice);
  GenerationEvent items_past(const Choice& choice) const;
  void write_chunk(std::size_t index, std::string& out);
  std::string id_line() const;
  void append_event(std::string& out, std::string_view data) const;
  std::string_view status() const;
  std::string_view text_of(TokenId token) const;
  std::string text_had(const Choice& choice) const;
  TokenTexts token_texts() const;
  void begin(JsonWriter& json, std::string_view object) const;
  void write_usage(JsonWriter& json) const;
  void write_usage(JsonWriter& json, const Usage& usage) const;
  Usage whole_usage() const;
  Usage usage_of(std::size_t choice) const;
  std::vector<std::size_t> choices_shown() const;
  ItemOutput::Usage items_usage() const;
  ItemOutput::State items_state(const ApiError* error) const;
  void write_items(JsonWriter& json);
  std::string items_end(const ApiError* error);
  bool write_pooled(std::string& out);
  void write_end(JsonWriter& json) const;
  bool write_choice();
  bool write_choice_logprobs(Choice& choice, const PromptState& prompt);
  bool write_prompt_logprobs(const PromptState& prompt, LogprobsPlace& place);
  void write_message(JsonWriter& json, std::size_t index) const;
  void write_delta(JsonWriter& json, std::size_t index) const;
  /// No stop string has cut the choice's last call. What the model breaks off is its client's to
  /// complain of.
  bool called_whole(const Choice& choice) const;
  static void follow_arguments(Choice& choice, const CallDelta& call);
  /// What its client knows the choice's calls by; null: it called nothing.
  const char* calls_name(const Choice& choice) const;
  void write_calls(JsonWriter& json, std::size_t index, bool delta) const;
  std::string call_id(std::size_t choice, const CallDelta& call) const;
  bool write_logprobs(JsonWriter& json, Choice& choice, const PromptState* echoed,
                      LogprobsPlace& place, std::size_t bytes_max) const;

  const GatewayModel& model_;
  const std::string model_name_;
  std::string id_;
  std::int64_t created_ = 0;
  const Wishes wishes_;
  const TokenNames names_;
  std::vector<PromptState> prompts_;
  std::vector<Choice> choices_;  // Prompt-major.
  std::size_t prompts_done_ = 0;
  const std::vector<std::string> stops_;
  AnswerForm form_;
  std::vector<std::string_view> tags_;     // In the text, though they may be special tokens.
  std::unique_ptr<ItemOutput> items_;      // What it is instead of a chat's.
  std::optional<TokenTexts> item_texts_;   // Of its tokens.
  std::optional<TextTokens> item_tokens_;  // Those that its text was made of, if they are told.
  std::optional<PooledAnswer> pooled_;     // What it is instead of any answer.
  bool shows_counts_ = false;              // With each event.
  std::vector<State> states_;              // By prompt; none: they are not asked for.
  std::optional<ApiError> failure_;
  std::uint64_t completion_tokens_ = 0, reasoning_tokens_ = 0;
  Writing writing_;
};

}  // namespace troupe
