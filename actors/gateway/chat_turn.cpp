#include "actors/gateway/chat_turn.h"

#include <utility>

#include "actors/gateway/json_writer.h"

namespace troupe {
namespace {

void write_content(JsonWriter& json, const ChatTurn& turn) {
  json.key("content");
  if (turn.text) {
    json.value(*turn.text);
  } else if (turn.parts.empty()) {
    json.null();
  } else {
    json.begin_array();
    for (const std::string& part : turn.parts)
      json.begin_object().member("type", "text").member("text", part).end_object();
    json.end_array();
  }
}

void write_turn(JsonWriter& json, const ChatTurn& turn) {
  json.begin_object().member("role", turn.role);
  write_content(json, turn);
  if (!turn.thought.empty()) json.member("reasoning_content", turn.thought);
  if (turn.role == "tool") json.member("tool_call_id", turn.call_id);
  if (turn.is_error) json.member("is_error", true);
  if (!turn.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ChatTurn::Call& call : turn.calls) {
      json.begin_object().member("id", call.id).member("type", "function");
      json.key("function").begin_object().member("name", call.name);
      json.member("arguments", call.arguments).end_object().end_object();
    }
    json.end_array();
  }
  json.end_object();
}

}  // namespace

void ChatTurn::add(std::string more) {
  if (!text && parts.empty()) {
    text = std::move(more);
    return;
  }
  if (text) parts.push_back(*std::exchange(text, std::nullopt));
  parts.push_back(std::move(more));
}

std::string write_chat_turns(const std::vector<ChatTurn>& turns) {
  JsonWriter json;
  json.begin_array();
  for (const ChatTurn& turn : turns) write_turn(json, turn);
  return std::move(json.end_array()).text();
}

}  // namespace troupe
