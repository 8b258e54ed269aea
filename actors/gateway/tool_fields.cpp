#include "actors/gateway/tool_fields.h"

#include <algorithm>
#include <utility>

#include "actors/gateway/schema_shape.h"
#include "model/chat/json_extent.h"
#include "model/chat/text_arguments.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr const char* kTools = "tools";
constexpr const char* kToolChoice = "tool_choice";
constexpr const char* kFunctions = "functions";
constexpr const char* kFunctionCall = "function_call";

/// One tool, or what is wrong with it.
std::string read_tool(const json& tool, std::string_view raw, Tool& out) {
  if (!tool.is_object()) return " must be an object.";
  const json type = tool.value("type", json());
  if (type != "function")
    return ".type must be \"function\"" +
           (type.is_string() ? ", not " + type.dump().substr(0, 66) : "") + ".";
  const json function = tool.value("function", json());
  if (!function.is_object()) return ".function must be an object.";
  const json name = function.value("name", json());
  if (!name.is_string() || !is_tool_name(name.get_ref<const std::string&>()))
    return std::string(".function.name must be ") + kToolNameForm + ".";
  out.name = name;
  const json description = function.value("description", json());
  if (!description.is_null() && !description.is_string())
    return ".function.description must be a string.";
  const json strict = function.value("strict", json());
  if (!strict.is_null() && !strict.is_boolean()) return ".function.strict must be true or false.";
  out.loose = strict != true;
  const json parameters = function.value("parameters", json());
  if (parameters.is_null()) return {};
  const bool object =
      parameters.is_object() && parameters.value("type", json("object")) == "object";
  if (!object) return ".function.parameters must be the JSON schema of an object.";
  if (const std::string wrong = wrong_in_schema(parameters); !wrong.empty())
    return ".function.parameters" + wrong;
  const bool typed = parameters.contains("type");
  out.parameters = json_member(json_member(raw, "function"), "parameters");
  if (out.parameters.empty()) out.parameters = parameters.dump();
  if (typed) return {};
  const char* const added = parameters.empty() ? R"("type": "object")" : R"("type": "object", )";
  out.parameters.insert(1, added);
  return {};
}

/// What a request offers, in either form.
struct Offer {
  const char* field = kTools;
  json list = {}, choice = {};  ///< as `tools` and `tool_choice` have them; null: there is none
  std::string raw = {};         ///< the list as it was written

  bool old() const { return field == kFunctions; }
  std::string choice_field() const { return old() ? kFunctionCall : kToolChoice; }
};

/// Older clients' `functions` are tools, and `function_call` is a choice.
Offer read_functions(FieldReader& fields) {
  Offer offer{.field = kFunctions};
  const json* list = fields.find(kFunctions);
  if (list != nullptr && !list->is_array()) fields.fail(kFunctions, "functions must be a list.");
  if (list != nullptr && !list->empty()) {
    for (const json& function : *list)
      offer.list.push_back({{"type", "function"}, {"function", function}});
    each_json_child(fields.text_of(kFunctions), [&](std::string_view, std::string_view function) {
      offer.raw += offer.raw.empty() ? "[" : ", ";
      offer.raw.append(R"({"type": "function", "function": )").append(function).append("}");
    });
    offer.raw += "]";
  }
  const json* call = fields.find(kFunctionCall);
  if (call == nullptr) return offer;
  const json name = call->is_object() ? call->value("name", json()) : json();
  if (name.is_string())
    offer.choice = {{"type", "function"}, {"function", {{"name", name}}}};
  else if (*call == "auto" || *call == "none")
    offer.choice = *call;
  else
    fields.fail(kFunctionCall, "function_call must be \"auto\", \"none\" or {\"name\": ...}.");
  return offer;
}

Offer read_offer(FieldReader& fields) {
  const json* list = fields.find(kTools);
  const json* choice = fields.find(kToolChoice);
  Offer old = read_functions(fields);
  const bool is_old = !old.list.is_null() || !old.choice.is_null();
  if (list == nullptr && choice == nullptr && is_old) return old;
  if (is_old)
    fields.fail(old.list.is_null() ? kFunctionCall : kFunctions,
                "functions and function_call cannot be used together with tools and tool_choice.");
  Offer offer;
  if (choice != nullptr) offer.choice = *choice;
  if (list == nullptr) return offer;
  offer.list = *list;
  offer.raw = fields.text_of(kTools);
  return offer;
}

std::vector<Tool> read_list(FieldReader& fields, const Offer& offer) {
  std::vector<Tool> tools;
  std::set<std::string> names;
  std::vector<std::string_view> raws;
  each_json_child(offer.raw,
                  [&](std::string_view, std::string_view item) { raws.push_back(item); });
  for (std::size_t i = 0; i < offer.list.size(); ++i) {
    Tool tool;
    std::string trouble =
        read_tool(offer.list[i], i < raws.size() ? raws[i] : std::string_view(), tool);
    if (trouble.empty() && !names.insert(tool.name).second)
      trouble = ".function.name is '" + tool.name + "', as that of another tool.";
    if (!trouble.empty()) {
      // An older client's function is all that its tool has.
      if (offer.old()) trouble.erase(0, std::string_view(".function").size());
      fields.fail(offer.field, std::string(offer.field) + "[" + std::to_string(i) + "]" + trouble);
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

/// What the model may call, and whether it must.
struct Choice {
  bool must = false;
  bool one = false;                                 ///< and no more than that
  std::optional<std::set<std::string>> names = {};  ///< of these; none: of all
};

/// The name in {"type": "function", "function": {"name": ...}}; empty: it is none.
std::string named(const json& function) {
  if (!function.is_object() || function.value("type", json()) != "function") return {};
  const json of = function.value("function", json());
  const json name = of.is_object() ? of.value("name", json()) : json();
  return name.is_string() ? name.get<std::string>() : "";
}

void read_allowed(FieldReader& fields, const json& choice, Choice& out) {
  const json allowed = choice.value("allowed_tools", json());
  const json mode = allowed.is_object() ? allowed.value("mode", json()) : json();
  const json tools = allowed.is_object() ? allowed.value("tools", json()) : json();
  if (mode != "auto" && mode != "required")
    return fields.fail(kToolChoice,
                       "tool_choice.allowed_tools.mode must be \"auto\" or \"required\".");
  out.must = mode == "required";
  out.names.emplace();
  for (const json& tool : tools.is_array() ? tools : json::array()) out.names->insert(named(tool));
  if (out.names->empty() || out.names->contains(""))
    fields.fail(kToolChoice, "tool_choice.allowed_tools.tools must be a list of functions.");
}

Choice read_choice(FieldReader& fields, const json& choice) {
  Choice out;
  const json type = choice.is_object() ? choice.value("type", json()) : json();
  const std::string name = named(choice);
  if (type == "allowed_tools") {
    read_allowed(fields, choice, out);
  } else if (!name.empty()) {
    out = {.must = true, .one = true, .names = std::set{name}};
  } else if (choice == "required") {
    out.must = true;
  } else if (!choice.is_null() && choice != "auto") {
    fields.fail(kToolChoice,
                "tool_choice must be \"auto\", \"none\", \"required\", {\"type\": \"function\", "
                "\"function\": {\"name\": ...}} or {\"type\": \"allowed_tools\", "
                "\"allowed_tools\": {\"mode\": ..., \"tools\": [...]}}.");
  }
  return out;
}

/// Leaves in `tools` what a grammar holds calls to. If the model may choose, nothing, unless the
/// grammar has something to say: of the answer's format, of names, or of strict arguments.
void choose(FieldReader& fields, const Offer& offer, std::vector<Tool>& tools, ApiRequest& out) {
  const Choice choice = read_choice(fields, offer.choice);
  if (fields.failed()) return;
  if (choice.names) {
    std::erase_if(tools, [&](const Tool& tool) { return !choice.names->contains(tool.name); });
    if (tools.size() < choice.names->size())
      fields.fail(offer.choice_field(),
                  offer.choice_field() + " names a function that is not in " + offer.field + ".");
  }
  if (out.prompts.front().grammar_in_thought)
    return fields.fail(
        "structured_outputs",
        std::string("structured_outputs.enable_in_reasoning cannot be used together with ") +
            offer.field + ".");
  if (choice.one) out.calls.several = false;
  if (choice.must) {
    for (Tool& tool : tools) tool.loose = false;
    // What response_format says is of an answer's content, of which there is none.
    if (!out.format_field.empty() && out.format_field != "response_format")
      fields.fail(out.format_field, out.format_field + " cannot be used together with a " +
                                        offer.choice_field() +
                                        " that makes the model call: such an answer has no other "
                                        "text.");
    return;
  }
  const bool holds = out.wants_grammar || choice.names || !std::ranges::all_of(tools, &Tool::loose);
  if (!holds) tools.clear();
  out.may_answer = holds;
}

/// The function that was called; `where` names it.
void read_called(FieldReader& fields, const std::string& where, const json& function,
                 ToolCall& out) {
  if (!function.is_object()) return fields.fail("messages", where + " must be an object.");
  const json name = function.value("name", json());
  if (!name.is_string() || !is_called_name(name.get_ref<const std::string&>()))
    return fields.fail("messages", where + ".name must be " + kCalledNameForm + ".");
  const json arguments = function.value("arguments", json());
  if (!arguments.is_null() && !arguments.is_string() && !arguments.is_object())
    return fields.fail("messages", where + ".arguments must be a string.");
  out.name = name;
  if (!arguments.is_null())
    out.arguments = arguments.is_string() ? arguments.get<std::string>() : arguments.dump();
}

void read_call(FieldReader& fields, const std::string& where, const json& value, ToolCall& out) {
  if (!value.is_object() || value.value("type", json("function")) != "function")
    return fields.fail("messages", where + " must be an object with type \"function\".");
  const json id = value.value("id", json());
  if (!id.is_null() && !id.is_string())
    return fields.fail("messages", where + ".id must be a string.");
  out.id = id.is_string() ? id.get<std::string>() : "";
  read_called(fields, where + ".function", value.value("function", json()), out);
}

}  // namespace

void read_tools(FieldReader& fields, const ModelFacts& model, ApiRequest& out) {
  bool several = true;
  fields.boolean("parallel_tool_calls", several);
  Offer offer = read_offer(fields);
  if (fields.failed() || offer.choice == "none") return;
  const bool old = offer.old();
  if (offer.list.is_null() || (offer.list.is_array() && offer.list.empty())) {
    if (!offer.choice.is_null() && offer.choice != "auto")
      fields.fail(offer.choice_field(), offer.choice_field() + " makes sense only with " +
                                            (old ? kFunctions : kTools) + ".");
    return;
  }
  const std::string name = offer.field;
  if (!offer.list.is_array() || offer.list.size() > limits::kToolsMax)
    return fields.fail(
        name, name + " must be a list of at most " + std::to_string(limits::kToolsMax) + " tools.");
  if (offer.raw.size() > limits::kToolsBytesMax)
    return fields.fail(
        name, name + " must have at most " + std::to_string(limits::kToolsBytesMax) + " bytes.");
  std::vector<Tool> tools = read_list(fields, offer);
  if (fields.failed()) return;
  out.calls = {.read = true, .several = several && !old, .old = old, .sketch = sketch_of(tools)};
  choose(fields, offer, tools, out);
  out.calls.list = model.tools == ToolStyle::kNone;
  if (out.calls.list && (tools.empty() || out.may_answer))
    return fields.fail(name, name +
                                 " cannot be left to this model's choice: its chat template has no "
                                 "form for calls. Set " +
                                 offer.choice_field() + " to " + (old ? "" : "\"required\", ") +
                                 "\"none\" or a function.");
  out.forced = std::move(tools);
  out.prompts.front().tools = std::move(offer.raw);
}

void read_message_calls(FieldReader& fields, const std::string& where, const json& message,
                        ChatMessage& out) {
  const json old = message.value("function_call", json());
  if (!old.is_null()) {
    if (out.role != "assistant")
      return fields.fail("messages", where + ".function_call must be an assistant's.");
    read_called(fields, where + ".function_call", old, out.tool_calls.emplace_back());
  }
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
  if (request.may_answer) {
    wanted.says = of.grammar.empty();
    wanted.otherwise = std::move(of.grammar);
  }
  wanted.tools = std::move(request.forced);
  wanted.several = request.calls.several;
  wanted.token_of = [&](std::string_view tag) { return model.added_token_id(tag); };
  request.forced.clear();
  Result<std::string> grammar = write_tool_grammar(wanted);
  const std::string field = request.calls.old ? kFunctions : kTools;
  if (!grammar) {
    std::string message = grammar.error().message;
    if (message.starts_with(kTools)) message.replace(0, std::string_view(kTools).size(), field);
    if (request.may_answer) message += " Without strict its calls may have any arguments.";
    return bad_field(field, std::move(message));
  }
  of.grammar = std::move(*grammar);
  of.grammar_of_calls = true;
  of.grammar_field = field;
  return std::nullopt;
}

}  // namespace troupe
