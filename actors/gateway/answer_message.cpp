// Of an answer to a chat: its message, whole or as a delta, with the tools that it calls.
#include <array>
#include <cstdio>

#include "actors/gateway/answer.h"
#include "runtime/xxh3.h"

namespace troupe {

/// The model's own, or made of the answer's id, so that it is the same whenever it is written.
std::string Answer::call_id(std::size_t choice, const CallDelta& call) const {
  if (!call.id.empty()) return call.id;
  const std::string what = id_ + " " + std::to_string(choice) + " " + std::to_string(call.index);
  const Digest digest = xxh3_128(what.data(), what.size());
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "call_%016llx%08x",
                static_cast<unsigned long long>(digest.low), static_cast<unsigned>(digest.high));
  return text.data();
}

void Answer::write_delta(JsonWriter& json, std::size_t index) const {
  const Choice& choice = choices_[index];
  json.key("delta").begin_object();
  if (!choice.begun) json.member("role", "assistant");
  if (!choice.reasoning.empty()) json.member("reasoning_content", choice.reasoning);
  // Clients expect a text in the first delta.
  const bool first = !choice.begun && choice.reasoning.empty() && choice.calls.empty();
  if (first || !choice.content.empty()) json.member("content", choice.content);
  if (!choice.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const CallDelta& call : choice.calls) {
      json.begin_object().member("index", call.index);
      const bool begins = !call.name.empty();
      if (begins) json.member("id", call_id(index, call)).member("type", "function");
      json.key("function").begin_object();
      if (begins) json.member("name", call.name);
      json.member("arguments", call.arguments).end_object().end_object();
    }
    json.end_array();
  }
  json.end_object();
}

void Answer::write_message(JsonWriter& json, std::size_t index) const {
  const Choice& choice = choices_[index];
  json.key("message").begin_object().member("role", "assistant");
  if (!choice.parser) {
    json.member("content", choice.content);
  } else {
    const bool thinks = form_.reasoning.style != ReasoningStyle::kNone;
    if (thinks && wishes_.reasoning) json.member_or_null("reasoning_content", choice.reasoning);
    if (thinks || choice.called) {
      json.member_or_null("content", choice.content);
    } else {
      json.member("content", choice.content);
    }
  }
  if (!choice.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const CallDelta& call : choice.calls) {
      json.begin_object().member("id", call_id(index, call)).member("type", "function");
      json.key("function").begin_object().member("name", call.name);
      json.member("arguments", call.arguments).end_object().end_object();
    }
    json.end_array();
  }
  json.end_object();
}

}  // namespace troupe
