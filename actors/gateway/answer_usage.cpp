// Of an answer: what it took, in tokens.
#include "actors/gateway/answer.h"

namespace troupe {

void Answer::look_at(Choice& choice, TokenId token) {
  if (choice.thoughts.add(text_of(token))) ++reasoning_tokens_;
}

Answer::Usage Answer::usage_of(std::size_t choice) const {
  const PromptState& prompt = prompts_[choice / wishes_.n];
  return {prompt.tokens.size(), choices_[choice].count, prompt.cached_tokens,
          choices_[choice].thoughts.count()};
}

/// Of all of it.
Answer::Usage Answer::whole_usage() const {
  Usage usage{.completion = completion_tokens_, .reasoning = reasoning_tokens_};
  for (const PromptState& prompt : prompts_) {
    usage.prompt += prompt.tokens.size();
    usage.cached += prompt.cached_tokens;
  }
  return usage;
}

std::pair<std::uint64_t, std::uint64_t> Answer::tokens() const {
  const Usage all = whole_usage();
  return {all.prompt, all.completion};
}

void Answer::write_usage(JsonWriter& json) const { write_usage(json, whole_usage()); }

void Answer::write_usage(JsonWriter& json, const Usage& usage) const {
  json.key("usage").begin_object();
  json.member("prompt_tokens", usage.prompt);
  json.member("completion_tokens", usage.completion);
  json.member("total_tokens", usage.prompt + usage.completion);
  json.key("prompt_tokens_details").begin_object().member("cached_tokens", usage.cached);
  json.end_object();
  if (form_.reasoning.style != ReasoningStyle::kNone) {
    json.key("completion_tokens_details").begin_object();
    json.member("reasoning_tokens", usage.reasoning).end_object();
  }
  json.end_object();
}

}  // namespace troupe
