#include "actors/gateway/answer_room.h"

#include <algorithm>
#include <string>

#include "runtime/kept_tokens.h"

namespace troupe {
namespace {

/// What a token with so many alternatives takes in KeptTokens; -1: it is not kept.
std::size_t token_bytes(std::int32_t logprobs) {
  return (1 + static_cast<std::size_t>(logprobs)) * sizeof(TokenLogprob);
}

/// At most; a token has a byte or more, and the tokenizer may add one at each end.
std::size_t prompt_tokens(const Prompt& prompt, std::size_t max_model_len) {
  std::size_t tokens = max_model_len;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) tokens = ids->size();
  if (const auto* text = std::get_if<std::string>(&prompt)) tokens = text->size() + 2;
  return std::min(tokens, max_model_len);
}

/// Products that are too large become a number that is too large.
std::size_t times(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? static_cast<std::size_t>(-1) / 2 : product;
}

ApiError too_large(const char* field, std::string what, std::size_t bytes, std::size_t bytes_max) {
  what = std::string(field) + ": " + std::move(what) + " may take " + std::to_string(bytes);
  what += " bytes until the answer is sent, of at most " + std::to_string(bytes_max);
  what += "; ask for less at a time (n, max_tokens, log-probabilities), or stream the answer.";
  return bad_field(field, std::move(what));
}

}  // namespace

std::optional<ApiError> AnswerRoom::take(const ApiRequest& request, std::size_t max_model_len,
                                         std::size_t& taken) {
  const std::size_t token =
      token_bytes(request.return_token_ids ? std::max(request.logprobs, 0) : request.logprobs);
  const std::int32_t echoed = request.echo ? request.logprobs : -1;
  const std::size_t of_prompt = token_bytes(std::max(echoed, request.prompt_logprobs));
  std::size_t prompts = 0, answers = 0;
  for (const GenerationRequest& prompt : request.prompts)
    prompts += times(prompt_tokens(prompt.prompt, max_model_len), of_prompt);
  if (prompts > limits_.one_bytes_max)
    return too_large("prompt", "the prompts' log-probabilities", prompts, limits_.one_bytes_max);
  // The last event of a Response has all of it once more.
  if (!request.stream || (request.response && request.logprobs >= 0)) {
    const std::size_t usual = request.chat ? max_model_len : kCompletionTokens;
    const std::size_t length =
        std::min<std::size_t>(request.prompts.front().max_tokens.value_or(usual), max_model_len);
    const std::size_t choices = request.prompts.size() * request.n();
    answers = times(times(choices, length), token);
    if (answers > limits_.one_bytes_max - prompts)
      return too_large("max_tokens",
                       "the tokens of " + std::to_string(choices) + " choices of up to " +
                           std::to_string(length) + " tokens",
                       answers + prompts, limits_.one_bytes_max);
  }
  auto error = take(prompts + answers);
  if (!error) taken = prompts + answers;
  return error;
}

std::optional<ApiError> AnswerRoom::take(std::size_t bytes) {
  std::size_t used = bytes_;
  do {
    if (used > limits_.all_bytes_max || bytes > limits_.all_bytes_max - used)
      return to_api_error(resource_exhausted(
          "The answers that wait to be sent take all the memory that they may; try again in a "
          "moment, or stream."));
  } while (!bytes_.compare_exchange_weak(used, used + bytes));
  return std::nullopt;
}

}  // namespace troupe
