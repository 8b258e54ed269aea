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

void Answer::follow_arguments(Choice& choice, const CallDelta& call) {
  if (!call.name.empty()) choice.arguments = {}, choice.arguments_open = false;
  for (const char c : call.arguments) {
    const bool begins = !choice.arguments.begun();
    if (!begins && !choice.arguments_open) return;
    choice.arguments_open = choice.arguments.step(c) == JsonExtent::Step::kInside;
  }
}

bool Answer::called_whole(const Choice& choice) const {
  return !choice.arguments_open || choice.arguments.is_word() || stops_.empty();
}

const char* Answer::calls_name(const Choice& choice) const {
  if (!choice.called) return nullptr;
  return wishes_.old_calls ? "function_call" : "tool_calls";
}

/// `delta`: the next of their arguments; a call that goes on has no name.
void Answer::write_calls(JsonWriter& json, std::size_t index, bool delta) const {
  const Choice& choice = choices_[index];
  if (choice.calls.empty()) return;
  json.key(calls_name(choice));
  const auto write_function = [&json](const CallDelta& call) {
    json.begin_object();
    if (!call.name.empty()) json.member("name", call.name);
    json.member("arguments", call.arguments).end_object();
  };
  // There is one alone.
  if (wishes_.old_calls) return write_function(choice.calls.front());
  json.begin_array();
  for (const CallDelta& call : choice.calls) {
    json.begin_object();
    if (delta) json.member("index", call.index);
    if (!call.name.empty()) json.member("id", call_id(index, call)).member("type", "function");
    json.key("function");
    write_function(call);
    json.end_object();
  }
  json.end_array();
}

void Answer::write_delta(JsonWriter& json, std::size_t index) const {
  const Choice& choice = choices_[index];
  json.key("delta").begin_object();
  if (!choice.begun) json.member("role", "assistant");
  if (!choice.reasoning.empty()) json.member("reasoning_content", choice.reasoning);
  // Clients expect a text in the first delta.
  const bool first = !choice.begun && choice.reasoning.empty() && choice.calls.empty();
  if (first || !choice.content.empty()) json.member("content", choice.content);
  write_calls(json, index, true);
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
  write_calls(json, index, false);
  json.end_object();
}

}  // namespace troupe
