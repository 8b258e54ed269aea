// Of ChatFormat: what a template is given of a message. What it can take of one is found by
// rendering short conversations.
#include <algorithm>
#include <array>

#include "model/chat/chat_format.h"
#include "model/jinja/json.h"
#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

using jinja::Dict;
using jinja::Value;

constexpr std::array<std::string_view, 5> kRoles = {"system", "user", "assistant", "tool",
                                                    "developer"};

/// What is no JSON goes to the template as the text that it is.
Value arguments_value(const std::string& text, bool as_text) {
  const std::string whole = text.empty() ? "{}" : utf8::repair(text);
  if (as_text) return whole;
  const auto parsed = jinja::value_from_json(whole, "arguments");
  return parsed && parsed->dict() != nullptr ? *parsed : Value(whole);
}

Value call_value(const ToolCall& call, bool arguments_are_text) {
  Dict function;
  function.set("name", utf8::repair(call.name));
  function.set("arguments", arguments_value(call.arguments, arguments_are_text));
  Dict out;
  out.set("id", utf8::repair(call.id));
  out.set("type", "function");
  out.set("function", std::move(function));
  return out;
}

Value part_value(const std::string& text) {
  Dict part;
  part.set("type", "text");
  part.set("text", utf8::repair(text));
  return part;
}

/// Adds the members of a JSON object that are not there yet.
Status add_more(const std::string& json, const std::string& where, Dict& message) {
  if (json.empty()) return {};
  const Result<Value> more = jinja::value_from_json(json, where);
  if (!more) return more.error();
  if (more->dict() == nullptr) return invalid_argument(where + ": more must be an object");
  for (const auto& [name, value] : more->dict()->items())
    if (message.named(*name.text()) == nullptr) message.set(*name.text(), value);
  return {};
}

}  // namespace

std::string content_of(const ChatMessage& message) {
  std::string text = message.content;
  for (const std::string& part : message.parts) {
    if (&part != &message.parts.front()) text += '\n';
    text += part;
  }
  return text;
}

std::string& last_text(ChatMessage& message) {
  return message.parts.empty() ? message.content : message.parts.back();
}

std::string_view ChatFormat::role_of(const ChatMessage& message) const {
  if (message.role == "developer" && !form_.knows_developer) return "system";
  return message.role;
}

Value ChatFormat::content_value(const ChatMessage& from) const {
  if (!from.parts.empty() && form_.part_roles.contains(role_of(from))) {
    jinja::Values parts;
    for (const std::string& part : from.parts) parts.push_back(part_value(part));
    return parts;
  }
  std::string text = utf8::repair(content_of(from));
  const bool none = text.empty() && !from.tool_calls.empty() && form_.content_is_none;
  return none ? Value(Value::None{}) : Value(std::move(text));
}

Result<Value> ChatFormat::message_value(const ChatMessage& from, const std::string& where) const {
  if (std::ranges::find(kRoles, from.role) == kRoles.end())
    return invalid_argument(where + ".role is \"" + utf8::repair(from.role.substr(0, 64)) +
                            "\", but chats have system, user, assistant, tool and developer");
  Dict message;
  message.set("role", role_of(from));
  message.set("content", content_value(from));
  if (!from.tool_calls.empty()) {
    jinja::Values calls;
    for (const ToolCall& call : from.tool_calls)
      calls.push_back(call_value(call, form_.arguments_are_text));
    message.set("tool_calls", std::move(calls));
  }
  if (!from.tool_call_id.empty()) message.set("tool_call_id", utf8::repair(from.tool_call_id));
  if (!from.name.empty()) message.set("name", utf8::repair(from.name));
  if (!from.reasoning_content.empty())
    message.set("reasoning_content", utf8::repair(from.reasoning_content));
  if (const Status status = add_more(from.more, where, message); !status) return status.error();
  return Value(std::move(message));
}

Result<Value> ChatFormat::messages_value(std::span<const ChatMessage> messages) const {
  if (messages.empty()) return invalid_argument("a chat needs at least one message");
  jinja::Values all;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto message = message_value(messages[i], "messages[" + std::to_string(i) + "]");
    if (!message) return message;
    all.push_back(std::move(*message));
  }
  return Value(std::move(all));
}

void ChatFormat::learn_message_form() {
  const std::array<ChatMessage, 2> chat = {{{"developer", "THE_DEVELOPER"}, {"user", "x"}}};
  const auto prompt = render(chat, {});
  form_.knows_developer = prompt && prompt->find("THE_DEVELOPER") != std::string::npos;
  for (const std::string_view role : kRoles) {
    form_.part_roles.emplace(role);
    if (!takes_parts(role)) form_.part_roles.erase(form_.part_roles.find(role));
  }
}

/// Whether the template shows all parts of such a message as texts: no error, and not as Python or
/// JSON would show the list.
bool ChatFormat::takes_parts(std::string_view role) const {
  ChatMessage message{std::string(role), ""};
  message.parts = {"THE_FIRST_PART", "THE_SECOND_PART"};
  std::vector<ChatMessage> chat = {{"user", "x"}};
  if (role == "tool") {
    chat.push_back({"assistant", "", {{"functions.f:0", "f", "{}"}}});
    message.tool_call_id = "functions.f:0";
  }
  // Templates want a system message first, and the others in turns.
  chat.insert(role == "assistant" || role == "tool" ? chat.end() : chat.begin(), message);
  if (role == "user") chat.pop_back();
  const auto prompt = render(chat, {});
  const auto shows = [&](const char* text) { return prompt->find(text) != std::string::npos; };
  return prompt && shows("THE_FIRST_PART") && shows("THE_SECOND_PART") && !shows("'text'") &&
         !shows("\"text\"");
}

}  // namespace troupe
