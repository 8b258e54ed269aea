#include "tools/troupe/generation_json.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace troupe::cli {
namespace {

std::string number(float value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

std::string number(double value) { return nlohmann::json(value).dump(); }

template <class Items, class Format>
std::string list(const Items& items, const Format& format) {
  std::string out = "[";
  for (const auto& item : items) {
    if (out.size() > 1) out += ", ";
    out += format(item);
  }
  return out + "]";
}

/// {"id": logprob, ...}, best first.
std::string top(const TokenOutput& output) {
  std::string out = "{";
  for (const auto& t : output.top) {
    if (out.size() > 1) out += ", ";
    out += "\"" + std::to_string(t.token) + "\": " + number(t.logprob);
  }
  return out + "}";
}

}  // namespace

std::string generation_json(const Generation& g, bool prompt_logprobs) {
  const Completion& choice = g.choices.front();
  std::string out = "{\"prompt_tokens\": ";
  out += list(g.prompt_tokens, [](TokenId t) { return std::to_string(t); });
  out += ", \"tokens\": ";
  out += list(choice.tokens, [](const TokenOutput& t) { return std::to_string(t.token); });
  out += ", \"token_logprobs\": ";
  out += list(choice.tokens, [](const TokenOutput& t) { return number(t.logprob); });
  bool any_top = false;
  for (const auto& token : choice.tokens) any_top = any_top || !token.top.empty();
  if (any_top) out += ", \"top_logprobs\": " + list(choice.tokens, top);
  if (prompt_logprobs) {
    std::string prompt = "[null";
    for (const auto& token : g.prompt_logprobs) prompt += ", " + number(token.logprob);
    out += ", \"prompt_logprobs\": " + prompt + "]";
  }
  out += ", \"text\": " +
         nlohmann::json(choice.text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  out += std::string(", \"finish_reason\": \"") +
         (choice.finish == FinishReason::kStop ? "stop" : "length") + "\"";
  out += ", \"timing\": {\"queued_ms\": " + number(g.timing.queued_ms) +
         ", \"first_token_ms\": " + number(g.timing.first_token_ms) +
         ", \"total_ms\": " + number(g.timing.total_ms) + "}}";
  return out;
}

}  // namespace troupe::cli
