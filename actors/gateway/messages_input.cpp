#include "actors/gateway/messages_input.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "model/chat/json_extent.h"
#include "model/chat/tool_style.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr const char *kSystemRole = "system", *kMessagesField = "messages";
/// What the model reads where something else than text was.
constexpr const char *kImage = "[an image, which this model cannot see]",
                     *kDocument = "[a document that is no text, which this model cannot read]";

/// Claude Code begins its system prompt with a line that differs from request to request, for
/// Anthropic's accounts: no prefix would be found in the cache.
bool is_billing(std::string_view text) { return text.starts_with("x-anthropic-billing-header"); }

/// The text of a member that is an object or a list: names in it are in their order. Its own name
/// may have escapes.
std::string as_written(const json& value, std::string_view object, const char* name) {
  const std::string_view text = json_member(object, name);
  const bool same = text.starts_with(value.is_object() ? '{' : '[');
  return same ? std::string(text) : value.dump();
}

/// Reads messages one after the other. `raw` is a value as it was written.
class BlockReader {
 public:
  explicit BlockReader(FieldReader& fields) : fields_(fields) {}

  void read_system(const json& system) {
    field_ = kSystemRole;
    read_texts(system, kSystemRole, [this](std::string text) { add_system(std::move(text)); });
  }

  void read_message(const json& message, std::string_view raw, const std::string& where) {
    field_ = kMessagesField;
    if (!message.is_object()) return fail(where + " must be an object.");
    const json role = message.value("role", json());
    // Claude Code has two more for what it tells the model.
    const bool user = role == "user" || role == "ctx" || role == "msg";
    if (!user && role != "assistant" && role != kSystemRole)
      return fail(where + ".role must be user, assistant or system.");
    const auto content = message.find("content");
    if (content == message.end() || (!content->is_string() && !content->is_array()))
      return fail(where + ".content must be a string or a list of blocks.");
    if (role == kSystemRole)
      return read_texts(*content, where + ".content",
                        [this](std::string text) { add_system(std::move(text)); });
    role_ = user ? "user" : "assistant";
    if (content->is_string()) {
      std::string text = content->get<std::string>();
      // As a list without blocks: it says nothing that an answer could go on with.
      if (user || !text.empty()) turn().add(std::move(text));
      return;
    }
    const std::string blocks = as_written(*content, raw, "content");
    std::size_t i = 0;
    each_json_child(blocks, [&](std::string_view, std::string_view block) {
      if (i >= content->size() || fields_.failed()) return;
      read_block((*content)[i], block, where + ".content[" + std::to_string(i) + "]");
      ++i;
    });
  }

  std::vector<ChatTurn> turns;

 private:
  void fail(std::string message) { fields_.fail(field_, std::move(message)); }

  /// The one that more of this role belongs to.
  ChatTurn& turn() {
    if (turns.empty() || turns.back().role != role_) turns.push_back({.role = role_});
    return turns.back();
  }

  /// What is behind other text begins a paragraph.
  void add_system(std::string text) {
    if (text.empty() || is_billing(text)) return;
    const bool leads = turns.empty() || turns.back().role == kSystemRole;
    role_ = leads ? kSystemRole : "user";
    ChatTurn& into = turn();
    if (!leads && (into.text || !into.parts.empty())) text.insert(0, "\n\n");
    into.add(std::move(text));
  }

  std::string text_member(const json& block, const std::string& where, const char* name) {
    const json value = block.value(name, json());
    if (value.is_string()) return value.get<std::string>();
    fail(where + "." + name + " must be a string.");
    return {};
  }

  using Add = std::function<void(std::string)>;

  /// A text, or blocks of texts; `shows`: or of what could be shown to a model.
  void read_texts(const json& value, const std::string& where, const Add& add, bool shows = false) {
    if (value.is_string()) return add(value.get<std::string>());
    if (!value.is_array()) return fail(where + " must be a string or a list of text blocks.");
    for (std::size_t i = 0; i < value.size() && !fields_.failed(); ++i) {
      const std::string place = where + "[" + std::to_string(i) + "]";
      const json& block = value[i];
      const json type = block.is_object() ? block.value("type", json()) : json();
      if (type == "text") {
        add(text_member(block, place, "text"));
      } else if (!shows) {
        refuse(type, place, "text");
      } else if (!read_shown(block, type, place, add)) {
        refuse(type, place, "text, image and document");
      }
    }
  }

  /// False if it is neither an image nor a document. One that is text is read.
  bool read_shown(const json& block, const json& type, const std::string& where, const Add& add) {
    if (type == "image") add(kImage);
    if (type != "document") return type == "image";
    const json source = block.value("source", json());
    const json kind = source.is_object() ? source.value("type", json()) : json();
    const std::string place = where + ".source";
    if (kind == "text") {
      add(text_member(source, place, "data"));
    } else if (kind == "content") {
      read_texts(source.value("content", json()), place + ".content", add, true);
    } else {
      add(kDocument);
    }
    return true;
  }

  void refuse(const json& type, const std::string& where, const std::string& known) {
    if (!type.is_string()) return fail(where + " must be an object with a type.");
    fail(where + ".type '" + type.get<std::string>().substr(0, 64) +
         "' is not supported: this server reads " + known + ".");
  }

  void read_block(const json& block, std::string_view raw, const std::string& where) {
    const json type = block.is_object() ? block.value("type", json()) : json();
    const bool assistant = role_ == "assistant";
    if (type == "text") {
      std::string text = text_member(block, where, "text");
      if (!text.empty()) turn().add(std::move(text));
    } else if (!assistant && read_shown(block, type, where, [this](std::string text) {
                 turn().add(std::move(text));
               })) {
      return;
    } else if (type == "tool_result" && !assistant) {
      read_result(block, where);
    } else if (type == "tool_use" && assistant) {
      read_call(block, raw, where);
    } else if (type == "thinking" && assistant) {
      turn().thought += text_member(block, where, "thinking");
    } else if (type != "redacted_thinking" || !assistant) {
      refuse(type, where,
             assistant ? "text, thinking, redacted_thinking and tool_use of an assistant"
                       : "text, image, document and tool_result of a user");
    }
  }

  void read_call(const json& block, std::string_view raw, const std::string& where) {
    ChatTurn::Call call{.id = text_member(block, where, "id"),
                        .name = text_member(block, where, "name"),
                        .arguments = "{}"};
    if (!is_called_name(call.name)) fail(where + ".name must be " + kCalledNameForm + ".");
    const auto input = block.find("input");
    const bool there = input != block.end() && !input->is_null();
    if (there && !input->is_object()) fail(where + ".input must be an object.");
    if (there) call.arguments = as_written(*input, raw, "input");
    turn().calls.push_back(std::move(call));
  }

  void read_result(const json& block, const std::string& where) {
    ChatTurn result{.role = "tool", .call_id = text_member(block, where, "tool_use_id")};
    const json error = block.value("is_error", json());
    if (!error.is_null() && !error.is_boolean()) fail(where + ".is_error must be true or false.");
    result.is_error = error == true;
    const auto content = block.find("content");
    if (content != block.end() && !content->is_null())
      read_texts(
          *content, where + ".content", [&](std::string text) { result.add(std::move(text)); },
          true);
    if (!result.text && result.parts.empty()) result.text.emplace();
    turns.push_back(std::move(result));
  }

  FieldReader& fields_;
  const char* field_ = kMessagesField;
  std::string role_;  // Of the message that is read.
};

}  // namespace

std::vector<ChatTurn> read_message_turns(FieldReader& fields) {
  BlockReader reader(fields);
  if (const json* system = fields.find(kSystemRole)) reader.read_system(*system);
  const json* messages = fields.find(kMessagesField);
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.fail(kMessagesField, "messages must be a list of at least one message.");
  } else if (messages->size() > limits::kMessagesMax) {
    fields.fail(kMessagesField, "messages must hold at most " +
                                    std::to_string(limits::kMessagesMax) + " messages.");
  }
  if (fields.failed()) return {};
  const std::string written = fields.text_of(kMessagesField);
  std::size_t i = 0;
  each_json_child(written, [&](std::string_view, std::string_view raw) {
    if (i >= messages->size() || fields.failed()) return;
    reader.read_message((*messages)[i], raw, "messages[" + std::to_string(i) + "]");
    ++i;
  });
  return std::move(reader.turns);
}

}  // namespace troupe
