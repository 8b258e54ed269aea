#include "actors/gateway/messages_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway/field_reader.h"
#include "actors/gateway/json_body.h"
#include "actors/gateway/json_writer.h"
#include "actors/gateway/messages_input.h"
#include "actors/gateway/renamed_fields.h"
#include "actors/gateway/shared_fields.h"
#include "model/chat/json_extent.h"

namespace troupe {
namespace {

using nlohmann::json;

/// Fields that change no answer here.
constexpr std::array kWithoutEffect{
    "metadata",    "service_tier", "cache_control", "context_management",
    "diagnostics", "speed",        "inference_geo", "betas",
};

/// What would change an answer and is not there, or is called otherwise.
struct NotInMessages {
  const char *name, *why;
};
constexpr std::array kNotInMessages{
    NotInMessages{"container", "this server runs no containers"},
    NotInMessages{"mcp_servers", "this server calls no other servers"},
    NotInMessages{"stop", "this API calls it stop_sequences"},
    NotInMessages{"max_completion_tokens", "this API calls it max_tokens"},
    NotInMessages{"response_format", "this API calls it output_config.format"},
    NotInMessages{"reasoning_effort", "this API calls it output_config.effort"},
    NotInMessages{"n", "this API has one answer"},
};

constexpr std::array kMessageNames{
    RenamedField{"messages: reasoning_content", "messages: thinking"},
    RenamedField{"stop", "stop_sequences"},
    RenamedField{"response_format has no json_schema.schema", "output_config.format has no schema"},
    RenamedField{"response_format", "output_config.format"},
    RenamedField{"reasoning_effort", "output_config.effort"},
    RenamedField{"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
};

/// Of a tool, what a chat's function has, too.
constexpr std::array<std::string_view, 3> kOfFunctions = {"name", "description", "strict"};

/// Writes the chat's body, field by field.
class MessageTranslation {
 public:
  explicit MessageTranslation(FieldReader& fields) : fields_(fields) { chat_.begin_object(); }

  void translate(bool counts) {
    const auto take = [&](const char* name) {
      if (fields_.find(name) != nullptr) chat_.key(name).raw(fields_.text_of(name));
    };
    for (const char* name : kSharedFields) take(name);
    take("truncate_prompt_tokens");
    for (const char* name : kWithoutEffect) fields_.find(name);
    for (const NotInMessages& field : kNotInMessages) {
      const json* value = fields_.find(field.name);
      if (value != nullptr && !(value->is_array() && value->empty()))
        fields_.fail(field.name, std::string(field.name) + " is not supported: " + field.why + ".");
    }
    read_max_tokens(counts);
    if (fields_.find("stop_sequences") != nullptr)
      chat_.key("stop").raw(fields_.text_of("stop_sequences"));
    read_tools();
    read_tool_choice();
    read_output();
    read_messages();
  }

  /// `thoughts`: the model has some.
  void read_thinking(bool thoughts) {
    constexpr const char* kName = "thinking";
    const json* thinking = fields_.find(kName);
    if (thinking == nullptr) return;
    const json type = thinking->is_object() ? thinking->value("type", json()) : json();
    const bool on = type == "enabled" || type == "adaptive";
    if (!on && type != "disabled")
      return fields_.fail(kName, "thinking.type must be enabled, adaptive or disabled.");
    FieldReader inner(*thinking);
    inner.find("type");
    std::optional<std::int64_t> budget;
    inner.integer("budget_tokens", 1, std::numeric_limits<std::uint32_t>::max(), budget);
    std::string display = "summarized";
    inner.text("display", display);
    inner.refuse_misspelt();
    if (inner.failed()) return fields_.fail(kName, "thinking." + inner.error()->message);
    if (display != "summarized" && display != "omitted")
      return fields_.fail(kName, "thinking.display must be summarized or omitted.");
    if (display == "omitted") chat_.member("include_reasoning", false);
    // It may think: one that has no thoughts has thought enough.
    if (thoughts || !on) chat_.member(kName, on);
  }

  std::string take_chat() { return chat_.end_object().take(); }

 private:
  void read_max_tokens(bool counts) {
    constexpr const char* kName = "max_tokens";
    if (fields_.find(kName) != nullptr) {
      chat_.key(kName).raw(fields_.text_of(kName));
    } else if (!counts) {
      fields_.fail(kName, "max_tokens is missing: this API asks for it.");
    }
  }

  /// {"name", "input_schema"} is {"type": "function", "function": {"name", "parameters"}}.
  void read_tools() {
    constexpr const char* kName = "tools";
    const json* tools = fields_.find(kName);
    if (tools == nullptr) return;
    if (!tools->is_array()) return fields_.fail(kName, "tools must be a list.");
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const json& tool = (*tools)[i];
      const std::string where = "tools[" + std::to_string(i) + "]";
      if (!tool.is_object()) return fields_.fail(kName, where + " must be an object.");
      const json type = tool.value("type", json());
      if (!type.is_null() && type != "custom")
        return fields_.fail(kName, where + ".type " + type.dump().substr(0, 66) +
                                       " is not supported: this server has no tools of its own.");
      if (tool.value("input_schema", json()).is_null())
        return fields_.fail(kName, where + ".input_schema must be the JSON schema of an object.");
    }
    const std::string written = fields_.text_of(kName);
    chat_.key(kName).begin_array();
    each_json_child(written, [this](std::string_view, std::string_view tool) {
      chat_.begin_object().member("type", "function").key("function").begin_object();
      each_json_child(tool, [this](std::string_view quoted, std::string_view value) {
        const json name = json::parse(quoted, nullptr, false);
        if (name == "input_schema") chat_.key("parameters").raw(value);
        if (name.is_string() && std::ranges::find(kOfFunctions, name) != kOfFunctions.end())
          chat_.key(name.get_ref<const std::string&>()).raw(value);
      });
      chat_.end_object().end_object();
    });
    chat_.end_array();
  }

  void read_tool_choice() {
    constexpr const char* kName = "tool_choice";
    const json* choice = fields_.find(kName);
    if (choice == nullptr) return;
    const json type = choice->is_object() ? choice->value("type", json()) : json();
    const json name = choice->is_object() ? choice->value("name", json()) : json();
    if (type == "tool" && name.is_string()) {
      chat_.key(kName).begin_object().member("type", "function").key("function").begin_object();
      chat_.member("name", name.get_ref<const std::string&>()).end_object().end_object();
    } else if (type == "auto" || type == "any" || type == "none") {
      const auto& known = type.get_ref<const std::string&>();
      chat_.member(kName, known == "any" ? std::string("required") : known);
    } else {
      return fields_.fail(kName,
                          "tool_choice must be {\"type\": \"auto\"}, any, none, or {\"type\": "
                          "\"tool\", \"name\": ...}.");
    }
    FieldReader inner(*choice);
    bool one = false;
    inner.boolean("disable_parallel_tool_use", one);
    if (inner.failed()) return fields_.fail(kName, "tool_choice." + inner.error()->message);
    chat_.member("parallel_tool_calls", !one);
  }

  /// `output_format` is what output_config.format was called before.
  void read_output() {
    constexpr const char *kName = "output_config", *kFormat = "output_format";
    const json* older = fields_.find(kFormat);
    if (const json* config = fields_.find(kName)) {
      if (!config->is_object()) return fields_.fail(kName, "output_config must be an object.");
      const std::string written = fields_.text_of(kName);
      FieldReader inner(*config, written);
      if (inner.find("effort") != nullptr)
        chat_.key("reasoning_effort").raw(inner.text_of("effort"));
      if (const json* format = inner.find("format")) {
        if (older != nullptr)
          return fields_.fail(kFormat, "output_format is what output_config.format was called.");
        write_format(kName, *format, inner.text_of("format"));
      }
      inner.refuse_misspelt();
      if (inner.failed()) return fields_.fail(kName, "output_config." + inner.error()->message);
    }
    if (older != nullptr) write_format(kFormat, *older, fields_.text_of(kFormat));
  }

  /// A schema lies in the format itself.
  void write_format(const char* field, const json& format, const std::string& written) {
    const json type = format.is_object() ? format.value("type", json()) : json();
    if (type != "json_schema" || !format.contains("schema"))
      return fields_.fail(
          field, std::string(field) + " must have a format of type json_schema, with a schema.");
    chat_.key("response_format").begin_object().member("type", "json_schema");
    chat_.key("json_schema").begin_object().member("name", "answer");
    chat_.key("schema").raw(FieldReader(format, written).text_of("schema"));
    chat_.end_object().end_object();
  }

  /// What an assistant said last, the answer goes on with.
  void read_messages() {
    const std::vector<ChatTurn> turns = read_message_turns(fields_);
    if (fields_.failed()) return;
    chat_.key("messages").raw(write_chat_turns(turns));
    if (turns.empty()) return;
    const ChatTurn& last = turns.back();
    const bool says = last.text || !last.parts.empty();
    if (last.role == "assistant" && last.calls.empty() && !says && !last.thought.empty())
      return fields_.fail("messages",
                          "messages: the last one is a thought alone, which no answer goes on "
                          "with; leave it out, or add a text block.");
    if (last.role == "assistant" && last.calls.empty() && says)
      chat_.member("continue_final_message", true);
  }

  FieldReader& fields_;
  JsonWriter chat_;
};

std::optional<ApiError> parse_message_body(std::string_view body, const ModelFacts& model,
                                           bool counts, ApiRequest& out) {
  const Result<json> object = parse_json_body(body);
  if (!object) return bad_field("", object.error().message);
  FieldReader fields(*object, body);
  MessageTranslation translation(fields);
  translation.translate(counts);
  translation.read_thinking(model.reasoning);
  fields.refuse_misspelt();
  if (fields.failed()) return fields.error();
  if (auto error = parse_chat(translation.take_chat(), model, out))
    return as_message_error(std::move(*error));
  out.message = true;
  return std::nullopt;
}

/// The numbers in a sentence, in their order.
std::vector<std::uint64_t> numbers_in(std::string_view text) {
  std::vector<std::uint64_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    std::uint64_t number = 0;
    const auto read = std::from_chars(at, end, number);
    if (read.ec == std::errc()) numbers.push_back(number);
    at = read.ec == std::errc() ? read.ptr : at + 1;
  }
  return numbers;
}

/// What does not fit into the context is said in Anthropic's words: coding tools read the numbers,
/// and then say less or ask for less. They are in the sentences of the model frontend.
void say_what_is_too_long(std::string& message) {
  constexpr std::string_view kPrompt = "messages: has ", kAnswer = "max_tokens: is ";
  constexpr std::string_view kContext = " tokens; the context holds ";
  if (message.find(kContext) == message.npos) return;
  const std::vector<std::uint64_t> numbers = numbers_in(message);
  const auto number = [&](std::size_t i) { return std::to_string(numbers[i]); };
  if (message.starts_with(kPrompt) && numbers.size() == 2) {
    // An answer has a token or more.
    std::string has = message.substr(kPrompt.size(), message.find(kContext) - kPrompt.size());
    message = "prompt is too long: " + std::move(has) + " tokens > " +
              std::to_string(numbers[1] - 1) + " maximum";
  } else if (message.starts_with(kAnswer) && numbers.size() == 4) {
    message = "input length and `max_tokens` exceed context limit: " + number(1) + " + " +
              number(0) + " > " + number(2) +
              ", decrease input length or `max_tokens` and try again";
  }
}

}  // namespace

ApiError as_message_error(ApiError error) {
  if (error.param == "tools") {
    replace_in_message(error, ".function.parameters", ".input_schema");
    replace_in_message(error, ".function.", ".");
    replace_in_message(error, "\"required\", \"none\" or a function", "any, none or a tool");
  }
  replace_in_message(error, "response_format.json_schema.schema", "output_config.format.schema");
  say_what_is_too_long(error.message);
  return with_other_names(std::move(error), kMessageNames);
}

std::optional<ApiError> parse_message(std::string_view body, const ModelFacts& model,
                                      ApiRequest& out) {
  return parse_message_body(body, model, false, out);
}

std::optional<ApiError> parse_count_tokens(std::string_view body, const ModelFacts& model,
                                           ApiRequest& out) {
  return parse_message_body(body, model, true, out);
}

}  // namespace troupe
