#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/ids.h"
#include "runtime/pooling.h"
#include "runtime/request_name.h"
#include "runtime/result.h"
#include "runtime/sampling_params.h"

namespace troupe {

/// A tool that an answer called.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  ///< JSON text
  bool operator==(const ToolCall&) const = default;
};

/// One turn of a conversation. `role` is system, user or assistant, or what else the model's chat
/// template knows: tool, developer.
struct ChatMessage {
  std::string role;
  std::string content;                    ///< empty beside tool_calls: there is none
  std::vector<ToolCall> tool_calls = {};  ///< of an assistant
  std::string tool_call_id = {};          ///< of role tool: what it is the result of
  std::string name = {};                  ///< who speaks; of role tool: which one
  std::string reasoning_content = {};     ///< an assistant's thought before it
  std::vector<std::string> parts = {};    ///< the content, if it came as several texts
  std::string more = {};  ///< what else templates may ask for, a JSON object; empty: nothing
  bool operator==(const ChatMessage&) const = default;
};

/// Text, ids as they are, or a conversation for the model's chat format.
using Prompt = std::variant<std::string, std::vector<TokenId>, std::vector<ChatMessage>>;

/// OpenAI's default for completions without max_tokens; a chat may use the rest of the context.
inline constexpr std::uint32_t kCompletionTokens = 16;

/// What a client asks for. A field that is not set takes generation_config.json's value, then
/// OpenAI's default. Validated by the ModelFrontend before the Router sees it.
struct GenerationRequest {
  Prompt prompt;
  bool add_special_tokens = true;    ///< to a text: the BOS that the tokenizer's files ask for
  bool add_generation_prompt = true;  ///< behind a chat: what begins an assistant's message
  bool continue_final_message = false;  ///< of a chat: the answer goes on with it
  std::int64_t truncate_prompt_tokens = 0;  ///< the prompt's last so many; 0: all, -1: what fits
  std::string chat_template_kwargs;  ///< a JSON object for the chat template; empty: none
  std::string tools;                 ///< what the answer may call, a JSON list; empty: nothing
  std::optional<std::uint32_t> max_tokens;
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty,
      frequency_penalty;
  std::optional<std::int32_t> top_k;
  std::optional<std::uint64_t> seed;
  std::uint32_t n = 1;
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;  ///< what ended the answer is a part of its text
  bool skip_special_tokens = true;          ///< they are no part of the answer's text
  std::string grammar;            ///< the answer's grammar (model/grammar/README.md); empty: none
  std::string grammar_field = "grammar";  ///< what asked for it, for messages
  bool grammar_of_calls = false;  ///< it is of calls of tools, with what stands around them
  bool grammar_in_thought = false;  ///< it begins with the answer's first token, thought or not
  std::uint32_t min_tokens = 0;   ///< of an answer, before a token may end it
  std::vector<TokenId> stop_token_ids;     ///< end an answer as the model's own do
  std::vector<TokenId> allowed_token_ids;  ///< no others may come; empty: all
  std::vector<std::string> bad_words;      ///< texts whose tokens may not come one after the other
  std::vector<TokenBias> logit_bias;       ///< of a token once
  bool ignore_eos = false;
  std::int32_t logprobs = -1;         ///< as SamplingParams::top_logprobs
  std::int32_t prompt_logprobs = -1;  ///< the same for the prompt's tokens
  Pooling pooling = Pooling::kNone;   ///< hidden states of the prompt, and no answer
  std::optional<std::uint32_t> timeout_ms;
  bool streams = true;  ///< somebody reads each event as it comes, so that a pause shows
  std::int32_t priority = 0;  ///< of its owner's requests those with lower values go first
  std::shared_ptr<const RequestName> name;  ///< null: nobody asks for it again
};

/// When things happened to a request, in milliseconds since it was accepted; -1: not yet.
struct GenerationTiming {
  double queued_ms = -1;  ///< until a replica began to compute it
  double first_token_ms = -1;
  double total_ms = -1;
};

/// News of one choice of a request. Events of one choice come in order; after the event with
/// `request_done` (or an error) none follows.
struct GenerationEvent {
  std::uint32_t choice = 0;
  std::string text;                 ///< delta; whole UTF-8 characters
  std::vector<TokenOutput> tokens;  ///< new tokens, a stop token included
  FinishReason finish = FinishReason::kNone;
  bool request_done = false;                 ///< with the last choice's last event
  std::vector<TokenId> prompt_tokens;        ///< with the request's first event
  std::vector<TokenOutput> prompt_logprobs;  ///< with the first event: of prompt tokens 1, 2, ...
  GenerationTiming timing;
  std::optional<Error> error;       ///< ends the request
  std::uint32_t cached_tokens = 0;  ///< of prompt_tokens: found in the prefix cache
  std::vector<float> hidden = {};   ///< with the first event: [tokens, width], as pooling says
  bool behind = false;  ///< what its reader has missed goes on with the next event, at once
};

/// Something that happened to the cluster, for the status, the console and subscribers.
struct ClusterEvent {
  std::int64_t time_unix_ms = 0;
  std::string kind;  ///< node_joined, node_lost, placement, ready, degraded, refused, ...
  std::string text;
};

}  // namespace troupe
