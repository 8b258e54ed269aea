#include "actors/gateway/responses_input.h"

#include <utility>
#include <vector>

#include "actors/gateway/chat_turn.h"
#include "model/chat/tool_style.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr const char* kInput = "input";
/// Each has the answer that it is of read again.
constexpr std::size_t kReferencesMax = 128;

/// Reads the items of a conversation, one after the other.
class ItemReader {
 public:
  ItemReader(FieldReader& fields, const RecallItem& recall) : fields_(fields), recall_(recall) {}

  void read(const json& item, std::string where) {
    where_ = std::move(where);
    if (!item.is_object()) return fail(" must be an object.");
    const json type = item.value("type", json());
    // A reference may leave its type out.
    const bool names = type.is_null() && item.contains("id") && !item.contains("role");
    if (names || type == "item_reference") return read_reference(item);
    if (type.is_null() || type == "message") return read_message(item);
    if (type == "function_call") return read_call(item);
    if (type == "function_call_output") return read_result(item);
    if (type == "reasoning") return read_thought(item);
    if (!type.is_string()) return fail(".type must be a string.");
    fail(".type '" + type.get<std::string>().substr(0, 64) +
         "' is not supported: items may be message, function_call, function_call_output, "
         "reasoning and item_reference.");
  }

  std::vector<ChatTurn> turns;
  std::optional<ApiError> refusal;

 private:
  void fail(const std::string& what) { fields_.fail(kInput, where_ + what); }

  std::string text_member(const json& item, const char* name) {
    const auto value = item.find(name);
    if (value != item.end() && value->is_string()) return value->get<std::string>();
    fail("." + std::string(name) + " must be a string.");
    return {};
  }

  /// A text, or parts that are texts.
  void read_content(const json& item, const char* name, ChatTurn& out) {
    const auto value = item.find(name);
    const std::string place = "." + std::string(name);
    if (value != item.end() && value->is_string()) {
      out.text = value->get<std::string>();
      return;
    }
    if (value == item.end() || !value->is_array())
      return fail(place + " must be a string or a list of text parts.");
    for (std::size_t i = 0; i < value->size() && !fields_.failed(); ++i)
      out.parts.push_back(part_text((*value)[i], place + "[" + std::to_string(i) + "]"));
    if (value->empty()) out.text.emplace();
  }

  /// An earlier answer may have refused: that is what was said then.
  std::string part_text(const json& part, const std::string& place) {
    const json type = part.is_object() ? part.value("type", json()) : json();
    if (!type.is_string()) {
      fail(place + " must be an object with a type.");
      return {};
    }
    const bool refusal = type == "refusal";
    if (!refusal && type != "input_text" && type != "output_text" && type != "text") {
      fail(place + ".type '" + type.get<std::string>().substr(0, 64) +
           "' is not supported: this server reads text only (input_text, output_text, refusal).");
      return {};
    }
    const char* const member = refusal ? "refusal" : "text";
    const json text = part.value(member, json());
    if (text.is_string()) return text.get<std::string>();
    fail(place + "." + member + " must be a string.");
    return {};
  }

  void read_message(const json& item) {
    const std::string role = text_member(item, "role");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return fail(".role must be user, assistant, system or developer.");
    turns.push_back({.role = role});
    read_content(item, "content", turns.back());
    think();
  }

  /// Only what the model wrote: a summary is no thought, and one that is encrypted is not ours.
  void read_thought(const json& item) {
    const json parts = item.value("content", json());
    if (parts.is_null()) return;
    if (!parts.is_array()) return fail(".content must be a list of parts.");
    for (const json& part : parts) {
      const json text = part.is_object() ? part.value("text", json()) : json();
      if (!text.is_string()) return fail(".content must hold parts of type reasoning_text.");
      thought_ += text.get_ref<const std::string&>();
    }
  }

  /// What was thought belongs to what an assistant said or called then.
  void think() {
    if (turns.back().role == "assistant") turns.back().thought += thought_;
    thought_.clear();
  }

  void read_call(const json& item) {
    ChatTurn::Call call{.id = text_member(item, "call_id"),
                        .name = text_member(item, "name"),
                        .arguments = text_member(item, "arguments")};
    if (!is_called_name(call.name)) fail(std::string(".name must be ") + kCalledNameForm + ".");
    if (turns.empty() || turns.back().role != "assistant") turns.push_back({.role = "assistant"});
    turns.back().calls.push_back(std::move(call));
    think();
  }

  /// What an earlier response said, called or thought, or was asked.
  void read_reference(const json& reference) {
    const std::string id = text_member(reference, "id");
    if (++references_ > kReferencesMax)
      fail(" is one item_reference more than the " + std::to_string(kReferencesMax) +
           " that may be there; send items, or previous_response_id.");
    if (fields_.failed()) return;
    json item;
    refusal = recall_(id, item);
    if (!refusal) return read(item, where_);
    if (refusal->status == 400)
      fail(".id '" + id.substr(0, 64) + "' names no item that can be taken: " + refusal->message +
           "; send the item itself.");
  }

  void read_result(const json& item) {
    turns.push_back({.role = "tool", .call_id = text_member(item, "call_id")});
    read_content(item, "output", turns.back());
  }

  FieldReader& fields_;
  const RecallItem& recall_;
  std::string where_;
  std::string thought_;  // Of the item that follows.
  std::size_t references_ = 0;
};

}  // namespace

std::string read_response_input(FieldReader& fields, const RecallItem& recall,
                                std::optional<ApiError>& refusal) {
  const json* input = fields.find(kInput);
  const bool items = input != nullptr && input->is_array() && !input->empty();
  if (input == nullptr || (!items && !input->is_string())) {
    fields.fail(kInput, "input must be a text or a list of at least one item.");
    return {};
  }
  if (items && input->size() > limits::kMessagesMax) {
    fields.fail(kInput,
                "input must hold at most " + std::to_string(limits::kMessagesMax) + " items.");
    return {};
  }
  ItemReader reader(fields, recall);
  if (!items) reader.read({{"role", "user"}, {"content", *input}}, kInput);
  for (std::size_t i = 0; items && i < input->size() && !fields.failed() && !reader.refusal; ++i)
    reader.read((*input)[i], "input[" + std::to_string(i) + "]");
  refusal = std::move(reader.refusal);
  return write_chat_turns(reader.turns);
}

std::string join_json_lists(std::string_view first, std::string_view second) {
  constexpr std::string_view kEmpty = "[]";
  if (first == kEmpty || second == kEmpty) return std::string(first == kEmpty ? second : first);
  std::string list(first.substr(0, first.size() - 1));
  list += ',';
  list += second.substr(1);
  return list;
}

}  // namespace troupe
