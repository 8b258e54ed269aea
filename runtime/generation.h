#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/ids.h"
#include "runtime/result.h"
#include "runtime/sampling_params.h"

namespace troupe {

/// One turn of a conversation. `role` is system, user or assistant, or what else the model's chat
/// template knows: tool, developer.
struct ChatMessage {
  std::string role;
  std::string content;
  bool operator==(const ChatMessage&) const = default;
};

/// Text, ids as they are, or a conversation for the model's chat format.
using Prompt = std::variant<std::string, std::vector<TokenId>, std::vector<ChatMessage>>;

/// What a client asks for. A field that is not set takes generation_config.json's value, then
/// OpenAI's default. Validated by the ModelFrontend before the Router sees it.
struct GenerationRequest {
  Prompt prompt;
  bool add_special_tokens = true;    ///< to a text: the BOS that the tokenizer's files ask for
  std::string chat_template_kwargs;  ///< a JSON object for the chat template; empty: none
  std::optional<std::uint32_t> max_tokens;
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty,
      frequency_penalty;
  std::optional<std::int32_t> top_k;
  std::optional<std::uint64_t> seed;
  std::uint32_t n = 1;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::int32_t logprobs = -1;         ///< as SamplingParams::top_logprobs
  std::int32_t prompt_logprobs = -1;  ///< the same for the prompt's tokens
  std::optional<std::uint32_t> timeout_ms;
  bool streams = true;  ///< somebody reads each event as it comes, so that a pause shows
};

/// When things happened to a request, in milliseconds since it was accepted; -1: not yet.
struct GenerationTiming {
  double queued_ms = -1;       ///< until a replica began to compute it
  double first_token_ms = -1;
  double total_ms = -1;
};

/// News of one choice of a request. Events of one choice come in order; after the event with
/// `request_done` (or an error) none follows.
struct GenerationEvent {
  std::uint32_t choice = 0;
  std::string text;                  ///< delta; whole UTF-8 characters
  std::vector<TokenOutput> tokens;   ///< new tokens, a stop token included
  FinishReason finish = FinishReason::kNone;
  bool request_done = false;         ///< with the last choice's last event
  std::vector<TokenId> prompt_tokens;        ///< with the request's first event
  std::vector<TokenOutput> prompt_logprobs;  ///< with the first event: of prompt tokens 1, 2, ...
  GenerationTiming timing;
  std::optional<Error> error;        ///< ends the request
  std::uint32_t cached_tokens = 0;   ///< of prompt_tokens: found in the prefix cache
};

/// Something that happened to the cluster, for the status, the console and subscribers.
struct ClusterEvent {
  std::int64_t time_unix_ms = 0;
  std::string kind;  ///< node_joined, node_lost, placement, ready, degraded, refused, ...
  std::string text;
};

}  // namespace troupe
