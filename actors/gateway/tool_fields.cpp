#include "actors/gateway/tool_fields.h"

#include <algorithm>
#include <utility>

#include "model/chat/json_extent.h"
#include "model/chat/text_arguments.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr const char* kTools = "tools";
constexpr const char* kToolChoice = "tool_choice";

/// One tool, or what is wrong with it.
std::string read_tool(const json& tool, std::string_view raw, Tool& out) {
  if (!tool.is_object()) return " must be an object.";
  if (tool.value("type", json()) != "function") return ".type must be \"function\".";
  const json function = tool.value("function", json());
  if (!function.is_object()) return ".function must be an object.";
  const json name = function.value("name", json());
  if (!name.is_string() || !is_tool_name(name.get_ref<const std::string&>()))
    return ".function.name must be 1 to 64 of a-z, A-Z, 0-9, _ and -.";
  out.name = name;
  const json description = function.value("description", json());
  if (!description.is_null() && !description.is_string())
    return ".function.description must be a string.";
  const json parameters = function.value("parameters", json());
  if (parameters.is_null()) return {};
  const bool object =
      parameters.is_object() && parameters.value("type", json("object")) == "object";
  if (!object) return ".function.parameters must be the JSON schema of an object.";
  const bool typed = parameters.contains("type");
  out.parameters = json_member(json_member(raw, "function"), "parameters");
  if (out.parameters.empty()) out.parameters = parameters.dump();
  if (typed) return {};
  const char* const type = parameters.empty() ? R"("type": "object")" : R"("type": "object", )";
  out.parameters.insert(1, type);
  return {};
}

std::vector<Tool> read_list(FieldReader& fields, const json& list, std::string_view raw) {
  std::vector<Tool> tools;
  std::set<std::string> names;
  std::vector<std::string_view> raws;
  each_json_child(raw, [&](std::string_view, std::string_view item) { raws.push_back(item); });
  for (std::size_t i = 0; i < list.size(); ++i) {
    Tool tool;
    std::string trouble = read_tool(list[i], i < raws.size() ? raws[i] : std::string_view(), tool);
    if (trouble.empty() && !names.insert(tool.name).second)
      trouble = ".function.name is '" + tool.name + "', as that of another tool.";
    if (!trouble.empty()) {
      fields.fail(kTools, "tools[" + std::to_string(i) + "]" + trouble);
      return {};
    }
    tools.push_back(std::move(tool));
  }
  return tools;
}

/// Which arguments are texts by the schema.
ToolSketch sketch_of(const std::vector<Tool>& tools) {
  ToolSketch sketch;
  for (const Tool& tool : tools) sketch[tool.name] = text_arguments(tool.parameters);
  return sketch;
}

/// The name of the function that must be called; empty: none, or something is wrong.
std::string read_named(FieldReader& fields, const json& choice) {
  const json function = choice.is_object() && choice.value("type", json()) == "function"
                            ? choice.value("function", json())
                            : json();
  const json name = function.is_object() ? function.value("name", json()) : json();
  if (name.is_string()) return name;
  fields.fail(kToolChoice,
              "tool_choice must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", "
              "\"function\": {\"name\": ...}}.");
  return {};
}

/// Leaves in `tools` what must be called. If the model may choose, nothing, unless its answer has a
/// format: a grammar must let it call, too.
void read_choice(FieldReader& fields, const json* choice, std::vector<Tool>& tools,
                 ApiRequest& out) {
  if (choice == nullptr || *choice == "auto") {
    out.may_answer = out.wants_grammar;
    if (!out.may_answer) tools.clear();
  } else if (*choice != "required") {
    const std::string name = read_named(fields, *choice);
    std::erase_if(tools, [&](const Tool& tool) { return tool.name != name; });
    if (tools.empty())
      fields.fail(kToolChoice, "tool_choice names a function that is not in tools.");
    out.calls.several = false;
  }
}

void read_call(FieldReader& fields, const std::string& where, const json& value, ToolCall& out) {
  const json function = value.is_object() ? value.value("function", json()) : json();
  if (!function.is_object() || value.value("type", json("function")) != "function")
    return fields.fail("messages", where + " must be an object with type \"function\".");
  const json id = value.value("id", json()), name = function.value("name", json());
  if (!id.is_null() && !id.is_string())
    return fields.fail("messages", where + ".id must be a string.");
  if (!name.is_string() || !is_tool_name(name.get_ref<const std::string&>()))
    return fields.fail("messages",
                       where + ".function.name must be 1 to 64 of a-z, A-Z, 0-9, _ and -.");
  const json arguments = function.value("arguments", json());
  if (!arguments.is_null() && !arguments.is_string() && !arguments.is_object())
    return fields.fail("messages", where + ".function.arguments must be a string.");
  out.id = id.is_string() ? id.get<std::string>() : "";
  out.name = name;
  if (!arguments.is_null())
    out.arguments = arguments.is_string() ? arguments.get<std::string>() : arguments.dump();
}

}  // namespace

void read_tools(FieldReader& fields, const ModelFacts& model, ApiRequest& out) {
  bool several = true;
  fields.boolean("parallel_tool_calls", several);
  const json* choice = fields.find(kToolChoice);
  const json* list = fields.find(kTools);
  if (choice != nullptr && *choice == "none") return;
  if (list == nullptr || (list->is_array() && list->empty())) {
    if (choice != nullptr && *choice != "auto")
      fields.fail(kToolChoice, "tool_choice makes sense only with tools.");
    return;
  }
  if (!list->is_array() || list->size() > limits::kToolsMax)
    return fields.fail(
        kTools, "tools must be a list of at most " + std::to_string(limits::kToolsMax) + " tools.");
  std::string raw = fields.text_of(kTools);
  if (raw.size() > limits::kToolsBytesMax)
    return fields.fail(
        kTools, "tools must have at most " + std::to_string(limits::kToolsBytesMax) + " bytes.");
  std::vector<Tool> tools = read_list(fields, *list, raw);
  if (fields.failed()) return;
  out.calls = {.read = true, .several = several, .sketch = sketch_of(tools)};
  read_choice(fields, choice, tools, out);
  out.calls.list = model.tools == ToolStyle::kNone;
  if (out.calls.list && (tools.empty() || out.may_answer))
    return fields.fail(kTools,
                       "tools cannot be left to this model's choice: its chat template has no form "
                       "for calls. Set tool_choice to \"required\", \"none\" or a function.");
  out.forced = std::move(tools);
  out.prompts.front().tools = std::move(raw);
}

void read_message_calls(FieldReader& fields, const std::string& where, const json& message,
                        ChatMessage& out) {
  const json calls = message.value("tool_calls", json());
  if (calls.is_null() || (calls.is_array() && calls.empty())) return;
  if (!calls.is_array() || out.role != "assistant")
    return fields.fail("messages", where + ".tool_calls must be a list, of an assistant.");
  for (std::size_t i = 0; i < calls.size() && !fields.failed(); ++i)
    read_call(fields, where + ".tool_calls[" + std::to_string(i) + "]", calls[i],
              out.tool_calls.emplace_back());
}

std::optional<ApiError> force_calls(const GatewayModel& model, ApiRequest& request) {
  if (request.forced.empty()) return std::nullopt;
  GenerationRequest& of = request.prompts.front();
  CallsWanted wanted;
  wanted.style = request.calls.list ? ToolStyle::kList : model.tool_style();
  wanted.reasoning = request.start;
  // What goes on with gpt-oss' final message cannot call any more.
  if (request.may_answer && wanted.reasoning.style == ReasoningStyle::kHarmony &&
      wanted.reasoning.over) {
    request.forced.clear();
    return std::nullopt;
  }
  if (request.may_answer) wanted.otherwise = std::move(of.grammar);
  wanted.tools = std::move(request.forced);
  wanted.several = request.calls.several;
  wanted.token_of = [&](std::string_view tag) { return model.added_token_id(tag); };
  request.forced.clear();
  Result<std::string> grammar = write_tool_grammar(wanted);
  if (!grammar && request.may_answer)
    return bad_field(kTools, grammar.error().message +
                                 " Where an answer's format is asked for, calls are held to their "
                                 "schemas, too; or set tool_choice to \"none\".");
  if (!grammar) return bad_field(kTools, grammar.error().message);
  of.grammar = std::move(*grammar);
  of.grammar_of_calls = true;
  of.grammar_field = kTools;
  return std::nullopt;
}

}  // namespace troupe
