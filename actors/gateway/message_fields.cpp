#include "actors/gateway/message_fields.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "actors/gateway/json_writer.h"
#include "actors/gateway/tool_fields.h"
#include "actors/gateway/unsupported_fields.h"
#include "model/chat/json_extent.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr const char* kMessages = "messages";
constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};
constexpr std::array<const char*, 3> kTexts = {"name", "reasoning_content", "tool_call_id"};
/// What else is read of a message, or refused.
constexpr std::array<std::string_view, 6> kRead = {"role",    "content", "tool_calls",
                                                   "refusal", "audio",   "function_call"};

template <class Names>
bool is_in(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// A part's text: as chats and as responses name it, a refusal of an earlier answer, or the text
/// itself.
std::optional<std::string> part_text(const json& part) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object()) return std::nullopt;
  const json type = part.value("type", json());
  const bool text = type == "text" || type == "input_text" || type == "output_text";
  const json told = part.value(text ? "text" : "refusal", json());
  if ((!text && type != "refusal") || !told.is_string()) return std::nullopt;
  return told.get<std::string>();
}

/// A text, or parts of type text.
void read_content(FieldReader& fields, const std::string& where, const json& value,
                  ChatMessage& out) {
  if (value.is_string()) {
    out.content = value.get<std::string>();
    return;
  }
  if (!value.is_array()) {
    return fields.fail(kMessages, where + ".content must be a string or a list of text parts.");
  }
  for (const json& part : value) {
    auto text = part_text(part);
    if (!text) return fields.fail(kMessages, where + ".content may hold parts of type text only.");
    out.parts.push_back(std::move(*text));
  }
}

void read_text(FieldReader& fields, const std::string& where, const json& message, const char* name,
               std::string& out) {
  const json value = message.value(name, json());
  if (value.is_string()) {
    out = value;
  } else if (!value.is_null()) {
    fields.fail(kMessages, where + "." + name + " must be a string.");
  }
}

/// What an assistant said instead of an answer is content as well.
void read_refusal(FieldReader& fields, const std::string& where, const json& message,
                  ChatMessage& out) {
  std::string refusal;
  read_text(fields, where, message, "refusal", refusal);
  if (refusal.empty()) return;
  if (out.role != "assistant")
    return fields.fail(kMessages, where + ".refusal must be an assistant's.");
  if (!out.content.empty()) out.parts = {std::exchange(out.content, {})};
  if (out.parts.empty())
    out.content = std::move(refusal);
  else
    out.parts.push_back(std::move(refusal));
}

/// Whether a member is left to the template: what nobody reads, and a text of which only that it is
/// there can be told.
bool is_more(std::string_view name, bool null, bool empty_text) {
  return !null && !is_in(kRead, name) && (empty_text || !is_in(kTexts, name));
}

bool has_more(const json& message) {
  return std::ranges::any_of(message.items(), [](const auto& member) {
    return is_more(member.key(), member.value().is_null(), member.value() == "");
  });
}

/// Of a message as it was written: templates see names in their order.
std::string more_of(std::string_view message) {
  JsonWriter out;
  out.begin_object();
  each_json_child(message, [&](std::string_view quoted, std::string_view value) {
    const std::string name = json::parse(quoted);
    if (is_more(name, value == "null", value == "\"\"")) out.key(name).raw(value);
  });
  return std::move(out.end_object()).text();
}

void read_message(FieldReader& fields, const std::string& where, const json& value,
                  ChatMessage& out) {
  if (!value.is_object()) return fields.fail(kMessages, where + " must be an object.");
  const auto role = value.find("role");
  if (role == value.end() || !role->is_string()) {
    return fields.fail(kMessages, where + ".role must be a string.");
  }
  out.role = role->get<std::string>();
  if (!is_in(kRoles, out.role)) {
    return fields.fail(kMessages,
                       where + ".role must be system, developer, user, assistant or tool, not '" +
                           out.role.substr(0, 64) + "'.");
  }
  if (out.role == "function") {  // An older client's result of a call.
    if (value.value("name", json()).is_null())
      return fields.fail(kMessages, where + ".name is missing.");
    out.role = "tool";
  }
  refuse_unsupported_in_message(fields, where, value);
  read_message_calls(fields, where, value, out);
  read_text(fields, where, value, kTexts[0], out.name);
  read_text(fields, where, value, kTexts[1], out.reasoning_content);
  read_text(fields, where, value, kTexts[2], out.tool_call_id);
  const auto content = value.find("content");
  // An answer that ended while the model thought has no content, and comes back like that; a tool
  // that has nothing to say may say nothing.
  const bool none = content == value.end() || content->is_null();
  const bool may_be_none =
      out.role == "assistant" || (out.role == "tool" && content != value.end());
  if (!none || !may_be_none) {
    if (content == value.end()) return fields.fail(kMessages, where + ".content is missing.");
    read_content(fields, where, *content, out);
  }
  read_refusal(fields, where, value, out);
}

/// Older clients' calls have no ids, and each result is of the call before it. Kimi K2 reads in an
/// id what was called.
void number_old_calls(const json& messages, std::vector<ChatMessage>& out) {
  std::string last;
  std::size_t count = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!messages[i].value("function_call", json()).is_null()) {
      ToolCall& call = out[i].tool_calls.front();
      last = call.id = "functions." + call.name + ":" + std::to_string(count++);
    }
    if (messages[i]["role"] == "function") out[i].tool_call_id = last;
  }
}

/// Adds what nobody has read.
void read_more(const FieldReader& fields, const json& messages, std::vector<ChatMessage>& out) {
  if (std::ranges::none_of(messages, has_more)) return;
  const std::string written = fields.text_of(kMessages);
  std::size_t i = 0;
  each_json_child(written, [&](std::string_view, std::string_view message) {
    if (i < out.size() && has_more(messages[i])) out[i].more = more_of(message);
    ++i;
  });
}

}  // namespace

std::vector<ChatMessage> read_messages(FieldReader& fields, const ModelFacts& model) {
  std::vector<ChatMessage> conversation;
  const json* messages = fields.find(kMessages);
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.fail(kMessages, "messages must be a list of at least one message.");
  } else if (messages->size() > limits::kMessagesMax) {
    fields.fail(kMessages, "messages must hold at most " + std::to_string(limits::kMessagesMax) +
                               " messages.");
  } else if (!model.has_tokenizer) {
    fields.fail(kMessages, "messages cannot be used: this model has no tokenizer.");
  } else {
    conversation.resize(messages->size());
    for (std::size_t i = 0; i < conversation.size() && !fields.failed(); ++i)
      read_message(fields, "messages[" + std::to_string(i) + "]", (*messages)[i], conversation[i]);
  }
  if (fields.failed()) return {};
  number_old_calls(*messages, conversation);
  read_more(fields, *messages, conversation);
  return conversation;
}

}  // namespace troupe
