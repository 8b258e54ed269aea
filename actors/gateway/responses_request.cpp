#include "actors/gateway/responses_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "actors/gateway/field_reader.h"
#include "actors/gateway/json_body.h"
#include "actors/gateway/json_writer.h"
#include "actors/gateway/renamed_fields.h"
#include "actors/gateway/responses_input.h"
#include "actors/gateway/shared_fields.h"
#include "actors/gateway/unsupported_fields.h"
#include "model/chat/json_extent.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

/// What a chat has as well, besides what all forms have (shared_fields.h).
constexpr std::array kOfChats{
    "stop", "thinking", "user", "enable_thinking", "parallel_tool_calls",
};

/// What can be asked for beside an answer; nothing of it is ever there, but log-probabilities.
constexpr std::string_view kLogprobs = "message.output_text.logprobs";
constexpr std::string_view kIncludable[] = {kLogprobs,
                                            "reasoning.encrypted_content",
                                            "file_search_call.results",
                                            "web_search_call.results",
                                            "web_search_call.action.sources",
                                            "message.input_image.image_url",
                                            "computer_call_output.output.image_url",
                                            "code_interpreter_call.outputs"};

constexpr std::size_t kMetadataPairsMax = 16, kMetadataKeyMax = 64, kMetadataValueMax = 512;

constexpr std::array kRenamed{
    RenamedField{"messages", "input"},
    RenamedField{"max_completion_tokens", "max_output_tokens"},
    RenamedField{"max_tokens", "max_output_tokens"},
    RenamedField{"response_format has no json_schema.schema", "text.format has no schema"},
    RenamedField{"response_format", "text.format"},
    RenamedField{"reasoning_effort", "reasoning.effort"},
    RenamedField{"tool_choice.allowed_tools", "tool_choice"},
};

/// A member's text as it was written, so that the names in it keep their order.
std::string member_text(const json& object, std::string_view text, const char* name) {
  const std::string_view member = json_member(text, name);
  return member.empty() ? object.at(name).dump() : std::string(member);
}

/// Writes the chat's body and what the answer repeats of the request, field by field.
class Translation {
 public:
  Translation(FieldReader& fields, ApiRequest::Response& response)
      : fields_(fields), response_(response) {
    chat_.begin_object();
    echo_.begin_object();
  }

  void translate(const Recall& recall) {
    refuse_unsupported_in_response(fields_);
    const auto take = [&](const char* name) {
      if (fields_.find(name) != nullptr) chat_.key(name).raw(fields_.text_of(name));
    };
    for (const char* name : kSharedFields) take(name);
    for (const char* name : kOfChats) take(name);
    fields_.find("stream_options");  // Padding against listeners is all that it can ask for.
    echo("temperature", "null");
    echo("top_p", "null");
    echo("parallel_tool_calls", "true");
    read_max_tokens();
    read_tools();
    read_tool_choice();
    read_text();
    read_reasoning();
    read_metadata();
    read_logprobs();
    read_truncation();
    read_conversation(recall);
    echo_.member("background", false);
  }

  /// Why a response before this one cannot be followed.
  const std::optional<ApiError>& refusal() const { return refusal_; }
  std::string take_chat() { return chat_.end_object().take(); }
  /// In one line, as an event's data has to be: in a string there are no line breaks.
  std::string take_echo() {
    std::string echo = echo_.end_object().take();
    std::erase_if(echo, [](char c) { return c == '\n' || c == '\r'; });
    return echo;
  }

 private:
  void echo(const char* name, const char* otherwise) {
    echo_.key(name).raw(fields_.find(name) != nullptr ? fields_.text_of(name) : otherwise);
  }

  void read_max_tokens() {
    constexpr const char* kName = "max_output_tokens";
    echo(kName, "null");
    if (fields_.find(kName) != nullptr)
      chat_.key("max_completion_tokens").raw(fields_.text_of(kName));
  }

  /// {"type": "function", "name": ...} is {"type": "function", "function": {"name": ...}}.
  void read_tools() {
    constexpr const char* kName = "tools";
    echo(kName, "[]");
    const json* tools = fields_.find(kName);
    if (tools == nullptr) return;
    if (!tools->is_array()) return fields_.fail(kName, "tools must be a list.");
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const json& tool = (*tools)[i];
      const json type = tool.is_object() ? tool.value("type", json()) : json();
      if (type != "function")
        return fields_.fail(kName,
                            "tools[" + std::to_string(i) + "].type must be \"function\"" +
                                (type.is_string() ? ", not " + type.dump().substr(0, 66) : "") +
                                ": this server has no tools of its own.");
    }
    const std::string written = fields_.text_of(kName);
    chat_.key(kName).begin_array();
    each_json_child(written, [this](std::string_view, std::string_view tool) {
      chat_.begin_object().member("type", "function").key("function").begin_object();
      each_json_child(tool, [this](std::string_view quoted, std::string_view value) {
        const json name = json::parse(quoted, nullptr, false);
        if (name.is_string() && name != "type")
          chat_.key(name.get_ref<const std::string&>()).raw(value);
      });
      chat_.end_object().end_object();
    });
    chat_.end_array();
  }

  void read_tool_choice() {
    constexpr const char* kName = "tool_choice";
    echo(kName, "\"auto\"");
    const json* choice = fields_.find(kName);
    if (choice == nullptr) return;
    if (choice->is_string()) {
      chat_.key(kName).raw(choice->dump());
      return;
    }
    const json type = choice->is_object() ? choice->value("type", json()) : json();
    if (type == "allowed_tools") {
      json tools = json::array();
      const json listed = choice->value("tools", json());
      for (const json& tool : listed.is_array() ? listed : json::array())
        tools.push_back(nested(tool));
      const json mode = choice->value("mode", json());
      chat_.key(kName).raw(json{{"type", type}, {type, {{"mode", mode}, {"tools", tools}}}}.dump());
      return;
    }
    const json function = nested(*choice);
    if (function.is_null())
      return fields_.fail(kName,
                          "tool_choice must be \"auto\", \"none\", \"required\", {\"type\": "
                          "\"function\", \"name\": ...} or {\"type\": \"allowed_tools\", \"mode\": "
                          "..., \"tools\": [...]}.");
    chat_.key(kName).raw(function.dump());
  }

  /// {"type": "function", "name": ...} as a chat has it; null if it is something else.
  static json nested(const json& function) {
    if (!function.is_object() || function.value("type", json()) != "function") return nullptr;
    const json name = function.value("name", json());
    if (!name.is_string()) return nullptr;
    return {{"type", "function"}, {"function", {{"name", name}}}};
  }

  void read_text() {
    constexpr const char* kName = "text";
    const json* text = fields_.find(kName);
    std::string shown = R"({"type":"text"})";
    if (text != nullptr) {
      if (!text->is_object()) return fields_.fail(kName, "text must be an object.");
      const std::string written = fields_.text_of(kName);
      FieldReader inner(*text);
      read_verbosity(inner);
      if (const json* format = inner.find("format")) {
        shown = member_text(*text, written, "format");
        write_format(*format, shown);
      }
      inner.refuse_misspelt();
      if (inner.failed()) return fields_.fail(kName, "text: " + inner.error()->message);
    }
    if (!verbosity_.empty()) chat_.member("verbosity", verbosity_);
    echo_.key(kName).begin_object().key("format").raw(shown);
    echo_.member("verbosity", verbosity_.empty() ? "medium" : verbosity_).end_object();
  }

  void read_verbosity(FieldReader& text) {
    constexpr std::string_view kKnown[] = {"low", "medium", "high"};
    text.text("verbosity", verbosity_);
    if (!verbosity_.empty() && std::ranges::find(kKnown, verbosity_) == std::end(kKnown))
      text.fail("verbosity", "verbosity must be low, medium or high.");
  }

  /// A schema lies in the format itself.
  void write_format(const json& format, const std::string& text) {
    chat_.key("response_format");
    const json type = format.is_object() ? format.value("type", json()) : json();
    if (type != "json_schema") {
      chat_.raw(text);
      return;
    }
    chat_.begin_object().member("type", "json_schema");
    chat_.key("json_schema").raw(text).end_object();
  }

  void read_reasoning() {
    constexpr const char* kName = "reasoning";
    const json* reasoning = fields_.find(kName);
    echo_.key(kName).begin_object().key("effort");
    if (reasoning == nullptr) {
      echo_.null();
    } else {
      if (!reasoning->is_object()) return fields_.fail(kName, "reasoning must be an object.");
      FieldReader inner(*reasoning);
      for (const char* name : {"summary", "generate_summary"}) read_summary(inner, name);
      const json* effort = inner.find("effort");
      const std::string wanted = effort != nullptr ? effort->dump() : "null";
      if (effort != nullptr) chat_.key("reasoning_effort").raw(wanted);
      echo_.raw(wanted);
      inner.refuse_misspelt();
      if (inner.failed()) return fields_.fail(kName, "reasoning." + inner.error()->message);
    }
    echo_.key("summary").null().end_object();
  }

  /// Thoughts are shown as they are: nobody sums them up.
  static void read_summary(FieldReader& reasoning, const char* name) {
    const json* summary = reasoning.find(name);
    if (summary != nullptr && *summary != "auto" && *summary != "concise" && *summary != "detailed")
      reasoning.fail(name, std::string(name) + " must be auto, concise or detailed.");
  }

  /// With "auto" the oldest part of the prompt goes, as far as it does not fit.
  void read_truncation() {
    constexpr const char *kName = "truncation", *kKept = "truncate_prompt_tokens";
    std::string truncation = "disabled";
    fields_.text(kName, truncation);
    if (truncation != "auto" && truncation != "disabled")
      fields_.fail(kName, "truncation must be auto or disabled.");
    echo_.member(kName, truncation);
    if (fields_.find(kKept) != nullptr) {
      chat_.key(kKept).raw(fields_.text_of(kKept));
    } else if (truncation == "auto") {
      chat_.member(kKept, -1);
    }
  }

  void read_metadata() {
    constexpr const char* kName = "metadata";
    echo(kName, "{}");
    if (fields_.find("user") != nullptr) echo("user", "null");
    const json* metadata = fields_.find(kName);
    if (metadata == nullptr) return;
    bool good = metadata->is_object() && metadata->size() <= kMetadataPairsMax;
    for (const auto& [key, value] : metadata->items())
      good = good && utf8_length(key) <= kMetadataKeyMax && value.is_string() &&
             utf8_length(value.get_ref<const std::string&>()) <= kMetadataValueMax;
    if (!good)
      fields_.fail(
          kName, "metadata must be an object of at most " + std::to_string(kMetadataPairsMax) +
                     " texts of at most " + std::to_string(kMetadataValueMax) +
                     " characters, with names of at most " + std::to_string(kMetadataKeyMax) + ".");
  }

  /// Of `include`: all else is not there, or, as thoughts are, shown as it is. Who asks for
  /// alternatives wants to see them.
  void read_logprobs() {
    constexpr const char *kName = "include", *kTop = "top_logprobs";
    std::optional<std::int64_t> top;
    fields_.integer(kTop, 0, static_cast<std::int64_t>(limits::kTopLogprobsMax), top);
    echo(kTop, "0");
    const json* include = fields_.find(kName);
    const auto is_known = [](const json& what) {
      return std::ranges::find(kIncludable, what) != std::end(kIncludable);
    };
    const bool lists = include != nullptr && include->is_array();
    if (include != nullptr && (!lists || !std::ranges::all_of(*include, is_known)))
      return fields_.fail(kName, "include must be a list of what OpenAI names.");
    const bool included = lists && std::ranges::find(*include, kLogprobs) != include->end();
    if (!included && top.value_or(0) == 0) return;
    chat_.member("logprobs", true).member(kTop, top.value_or(0));
  }

  void read_conversation(const Recall& recall) {
    bool store = true;
    fields_.boolean("store", store);
    echo_.member("store", store);
    echo("instructions", "null");
    echo("previous_response_id", "null");
    std::string instructions, previous, messages = "[]";
    fields_.text("instructions", instructions);
    const bool instructed = fields_.find("instructions") != nullptr;
    fields_.text("previous_response_id", previous);
    const bool follows = fields_.find("previous_response_id") != nullptr;
    const std::string input = read_response_input(fields_, recall.item, refusal_);
    if (fields_.failed() || refusal_) return;
    if (follows && (refusal_ = recall.response(previous, messages))) return;
    messages = join_json_lists(messages, input);
    if (messages == "[]")
      return fields_.fail("input",
                          "input has nothing but thoughts, to which there is no answer: add a "
                          "message, or what a function gave.");
    if (store) response_.messages = messages;
    JsonWriter first;
    first.begin_array();
    // They are of this Response alone: the next one has its own.
    if (instructed)
      first.begin_object().member("role", "system").member("content", instructions).end_object();
    first.end_array();
    chat_.key("messages").raw(join_json_lists(first.text(), messages));
  }

  FieldReader& fields_;
  ApiRequest::Response& response_;
  JsonWriter chat_, echo_;
  std::string verbosity_;  // Empty: not said.
  std::optional<ApiError> refusal_;
};

}  // namespace

ApiError as_response_error(ApiError error) {
  if (error.param == "tools") replace_in_message(error, ".function.", ".");
  return with_other_names(std::move(error), kRenamed);
}

std::optional<ApiError> parse_response(std::string_view body, const ModelFacts& model,
                                       const Recall& recall, ApiRequest& out) {
  const Result<json> object = parse_json_body(body);
  if (!object) return bad_field("", object.error().message);
  FieldReader fields(*object, body);
  ApiRequest::Response response;
  Translation translation(fields, response);
  translation.translate(recall);
  fields.refuse_misspelt();
  if (fields.failed()) return fields.error();
  if (translation.refusal()) return translation.refusal();
  const std::string chat = translation.take_chat();
  if (auto error = parse_chat(chat, model, out)) return as_response_error(std::move(*error));
  response.echo = translation.take_echo();
  out.response = std::move(response);
  return std::nullopt;
}

}  // namespace troupe
