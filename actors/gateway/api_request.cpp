#include "actors/gateway/api_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "actors/gateway/answer_format.h"
#include "actors/gateway/continuation_fields.h"
#include "actors/gateway/field_reader.h"
#include "actors/gateway/message_fields.h"
#include "actors/gateway/prompt_fields.h"
#include "actors/gateway/request_body.h"
#include "actors/gateway/thinking_fields.h"
#include "actors/gateway/tool_fields.h"
#include "actors/gateway/unsupported_fields.h"
#include "runtime/key_share.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

void read_sampling(FieldReader& fields, GenerationRequest& out) {
  fields.number("temperature", {0, kInfinity}, out.temperature);
  fields.number("top_p", {0, 1, true}, out.top_p);
  fields.number("min_p", {0, 1}, out.min_p);
  fields.number("repetition_penalty", {0, kInfinity, true}, out.repetition_penalty);
  fields.number("presence_penalty", {-2, 2}, out.presence_penalty);
  fields.number("frequency_penalty", {-2, 2}, out.frequency_penalty);

  std::optional<std::int64_t> top_k, seed, n;
  fields.integer("top_k", -1, std::numeric_limits<std::int32_t>::max(), top_k);
  if (top_k) out.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(*top_k, 0));  // -1: all
  fields.integer("seed", kInt64Min, kInt64Max, seed);
  if (seed) out.seed = static_cast<std::uint64_t>(*seed);
  fields.integer("n", 1, static_cast<std::int64_t>(limits::kChoicesMax), n);
  if (n) out.n = static_cast<std::uint32_t>(*n);

  fields.texts("stop", limits::kStopStringsMax, limits::kStopStringBytesMax, out.stop);
  fields.boolean("include_stop_str_in_output", out.include_stop_str_in_output);
  fields.boolean("skip_special_tokens", out.skip_special_tokens);
  fields.boolean("ignore_eos", out.ignore_eos);
  read_prompt_handling(fields, out);
}

/// Choices of which only the best are shown, and what is said of the prompt: both when all is
/// there.
void read_whole(FieldReader& fields, ApiRequest& out, GenerationRequest& request) {
  std::optional<std::int64_t> best_of, logprobs;
  fields.integer("best_of", 1, static_cast<std::int64_t>(limits::kChoicesMax), best_of);
  if (best_of && *best_of < request.n) fields.fail("best_of", "best_of must be at least n.");
  if (best_of && *best_of > request.n) {
    if (out.stream) fields.fail("best_of", "best_of above n cannot be streamed.");
    out.shown = std::exchange(request.n, static_cast<std::uint32_t>(*best_of));
    request.logprobs = 0;  // They say which are best.
  }
  fields.integer("prompt_logprobs", 0, static_cast<std::int64_t>(limits::kTopLogprobsMax),
                 logprobs);
  if (!logprobs) return;
  if (out.stream) fields.fail("prompt_logprobs", "prompt_logprobs cannot be streamed.");
  out.prompt_logprobs = request.prompt_logprobs = static_cast<std::int32_t>(*logprobs);
}

void read_stream(FieldReader& fields, ApiRequest& out) {
  fields.boolean("stream", out.stream);
  fields.boolean("return_token_ids", out.return_token_ids);
  fields.boolean("return_tokens_as_token_ids", out.tokens_as_ids);
  const json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return fields.fail("stream_options", "stream_options must be an object.");
  }
  if (!out.stream) {
    return fields.fail("stream_options",
                       "stream_options makes sense only with stream set to true.");
  }
  FieldReader inner(*options);
  inner.boolean("include_usage", out.include_usage);
  inner.boolean("continuous_usage_stats", out.continuous_usage);
  out.continuous_usage = out.continuous_usage && out.include_usage;  // as vLLM has it
  inner.refuse_misspelt();
  if (inner.failed()) fields.fail("stream_options", "stream_options: " + inner.error()->message);
}

/// What both endpoints share. `max_tokens_low`: the least that max_tokens may be.
void read_common(FieldReader& fields, const ModelFacts& model, std::int64_t max_tokens_low,
                 ApiRequest& out, GenerationRequest& request) {
  refuse_unsupported(fields, out.chat);
  read_sampling(fields, request);
  out.format_field = read_answer_format(fields, model, request);
  out.wants_grammar = !out.format_field.empty();
  read_token_rules(fields, request);
  read_stream(fields, out);
  read_whole(fields, out, request);
  if (!request.stop.empty() && !model.has_tokenizer) {
    fields.fail("stop", "stop cannot be used: this model has no tokenizer.");
  }
  std::optional<std::int64_t> max_tokens;
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  fields.integer("max_tokens", max_tokens_low, kMost, max_tokens);
  if (out.chat) fields.integer("max_completion_tokens", 1, kMost, max_tokens);
  if (max_tokens) request.max_tokens = static_cast<std::uint32_t>(*max_tokens);
}

void read_completion(FieldReader& fields, const ModelFacts& model, ApiRequest& out) {
  GenerationRequest request;
  fields.boolean("echo", out.echo);
  read_common(fields, model, out.echo ? 0 : 1, out, request);
  fields.boolean("add_special_tokens", request.add_special_tokens);
  std::optional<std::int64_t> logprobs;
  fields.integer("logprobs", 0, static_cast<std::int64_t>(limits::kTopLogprobsMax), logprobs);
  if (logprobs) {
    out.logprobs = request.logprobs = static_cast<std::int32_t>(*logprobs);
    if (out.echo) request.prompt_logprobs = std::max(request.prompt_logprobs, out.logprobs);
  }
  // A request that generates nothing scores its prompt.
  if (request.max_tokens == 0u) request.prompt_logprobs = std::max(request.prompt_logprobs, 0);
  std::vector<Prompt> prompts = read_prompts(fields, model, "prompt");
  if (prompts.size() * request.n > limits::kHttpChoicesMax) {
    fields.fail("n", "n times the number of prompts must be at most " +
                         std::to_string(limits::kHttpChoicesMax) + ".");
  }
  if (fields.failed()) return;
  for (Prompt& prompt : prompts) {
    out.prompts.push_back(request);
    out.prompts.back().prompt = std::move(prompt);
  }
}

/// What the template makes a chat's prompt of.
void read_chat_prompt(FieldReader& fields, const ModelFacts& model, ApiRequest& out) {
  read_thinking(fields, model, out);
  read_tools(fields, model, out);
  std::vector<ChatMessage> conversation = read_messages(fields, model);
  if (fields.failed()) return;
  out.prompts.front().prompt = std::move(conversation);
  read_continuation(fields, out);
}

void read_chat(FieldReader& fields, const ModelFacts& model, ApiRequest& out) {
  GenerationRequest& request = out.prompts.emplace_back();
  read_common(fields, model, 1, out, request);

  bool logprobs = false;
  std::optional<std::int64_t> top;
  fields.boolean("logprobs", logprobs);
  fields.integer("top_logprobs", 0, static_cast<std::int64_t>(limits::kTopLogprobsMax), top);
  if (top.value_or(0) > 0 && !logprobs) {
    fields.fail("top_logprobs", "top_logprobs makes sense only with logprobs set to true.");
  }
  if (logprobs) out.logprobs = request.logprobs = static_cast<std::int32_t>(top.value_or(0));

  read_chat_prompt(fields, model, out);
}

/// The text that is to be tokenised, or the chat.
void read_tokenize(FieldReader& fields, const ModelFacts& model, TokenizeRequest& out) {
  if (!model.has_tokenizer)
    return fields.fail("", "This model has no tokenizer; send prompts as token ids.");
  fields.boolean("return_token_strs", out.strings);
  if (fields.find("messages") != nullptr) {
    ApiRequest chat;
    chat.chat = true;
    chat.prompts.emplace_back();
    if (fields.find("prompt") != nullptr)
      return fields.fail("prompt", "prompt and messages cannot both be there.");
    refuse_unsupported(fields, true);
    read_chat_prompt(fields, model, chat);
    out.of = std::move(chat.prompts.front());
  } else {
    if (fields.find("prompt") == nullptr)
      return fields.fail("prompt", "prompt is missing, and so is messages.");
    fields.text("prompt", out.of.prompt.emplace<std::string>());
    fields.boolean("add_special_tokens", out.of.add_special_tokens);
  }
  out.of.truncate_prompt_tokens = -1;  // What is longer than the context has its tokens, too.
}

}  // namespace

std::optional<ApiError> parse_completion(std::string_view body, const ModelFacts& model,
                                         ApiRequest& out) {
  out = ApiRequest{};
  return parse_request(body, model,
                       [&](FieldReader& fields) { read_completion(fields, model, out); });
}

std::optional<ApiError> parse_chat(std::string_view body, const ModelFacts& model,
                                   ApiRequest& out) {
  out = ApiRequest{};
  out.chat = true;
  return parse_request(body, model, [&](FieldReader& fields) { read_chat(fields, model, out); });
}

std::optional<ApiError> parse_tokenize(std::string_view body, const ModelFacts& model,
                                       TokenizeRequest& out) {
  return parse_request(body, model,
                       [&](FieldReader& fields) { read_tokenize(fields, model, out); });
}

std::optional<ApiError> parse_detokenize(std::string_view body, const ModelFacts& model,
                                         DetokenizeRequest& out) {
  return parse_request(body, model, [&](FieldReader& fields) {
    if (!model.has_tokenizer) {
      return fields.fail("", "This model has no tokenizer, so ids have no text.");
    }
    const json* tokens = fields.find("tokens");
    const bool none = tokens != nullptr && tokens->is_array() && tokens->empty();
    if (!none && (tokens == nullptr || !read_token_ids(*tokens, out.tokens))) {
      fields.fail("tokens", "tokens must be a list of token ids.");
    }
  });
}

}  // namespace troupe
