#include "model/chat/tool_grammar.h"

#include <array>
#include <nlohmann/json.hpp>

#include "model/chat/glm_calls.h"
#include "model/chat/harmony.h"
#include "model/chat/json_extent.h"
#include "model/chat/text_without.h"
#include "model/chat/tool_style.h"
#include "model/grammar/grammar_writer.h"

namespace troupe {
namespace {

/// A text that holds none of GLM's or Harmony's tags that end it.
constexpr const char* kPlainText = R"(([^<] | "<"+ ([^</|] | "/" [^a<]))*)";
constexpr const char* kAnyObject = R"({"type": "object"})";

/// Writes calls in one family's form.
class CallWriter {
 public:
  explicit CallWriter(const CallsWanted& wanted) : wanted_(wanted) {}

  Result<std::string> write() {
    std::vector<std::string> calls;
    for (const Tool& tool : wanted_.tools) {
      auto call = is_loose(tool) ? write_loose(tool) : write_call(tool);
      if (!call) return invalid_argument("tools: " + tool.name + ": " + call.error().message);
      calls.push_back(std::move(*call));
    }
    std::string any;
    for (const std::string& call : calls) any += (any.empty() ? "" : " | ") + call;
    const std::string call = grammar_.rule("call", any);
    return std::move(grammar_).finish(root(section(call)));
  }

 private:
  /// A tag: its token, or its text.
  std::string tag(std::string_view text) const {
    const auto token = wanted_.token_of ? wanted_.token_of(text) : std::nullopt;
    return " " + (token ? GrammarWriter::token(*token) : GrammarWriter::literal(text)) + " ";
  }
  static std::string text(std::string_view text) {
    return " " + GrammarWriter::literal(text) + " ";
  }

  /// Whether its arguments may be any: nothing of a schema that cannot be written may stay here.
  bool is_loose(const Tool& tool) const {
    return tool.loose && !CallWriter(wanted_).write_call(tool);
  }
  Result<std::string> write_loose(const Tool& tool) {
    if (wanted_.style == ToolStyle::kGlm) return write_any_glm_call(tool);
    return write_call({tool.name, kAnyObject});
  }

  Result<std::string> arguments(const Tool& tool) {
    if (tool.parameters.empty()) return text("{}");
    auto json = grammar_.json_schema(tool.parameters);
    if (!json) return json;
    return " " + *json + " ";
  }

  bool must_call() const { return wanted_.otherwise.empty() && !wanted_.says; }
  std::string root(const std::string& calls);
  std::string said() const;
  std::string thought();
  std::string harmony_thoughts() const;
  std::string section(const std::string& call);
  Result<std::string> write_call(const Tool& tool);
  Result<std::string> write_json_call(const Tool& tool, std::string_view arguments_name);
  std::string write_any_glm_call(const Tool& tool) const;
  Result<std::string> write_glm_call(const Tool& tool);
  Result<std::string> glm_value(std::string_view schema, std::string_view all);

  const CallsWanted& wanted_;
  GrammarWriter grammar_;
};

/// What may stand before the calls: the channel of a thought, or the line breaks behind one.
std::string CallWriter::thought() {
  switch (wanted_.reasoning.style) {
    case ReasoningStyle::kNone:
      return {};
    case ReasoningStyle::kThink:
      return wanted_.reasoning.over ? "" : "\"\\n\"{0,2} ";
    case ReasoningStyle::kHarmony:
      return harmony_thoughts();
  }
  return {};
}

/// One, as a rule; where the model may choose it may also say what it will do, in the channel of
/// calls.
std::string CallWriter::harmony_thoughts() const {
  const std::string ends = text_without(HarmonyParser::kBodyEnds) + tag("<|end|>") +
                           tag("<|start|>") + text("assistant");
  const std::string channel = must_call() ? text("analysis") : "(\"analysis\" | \"commentary\")";
  const std::string thought = "( " + tag("<|channel|>") + channel + tag("<|message|>") + ends + ")";
  return (wanted_.reasoning.inside ? ends : "") + thought + (must_call() ? "? " : "* ");
}

/// A text that no parser takes for a call.
std::string CallWriter::said() const {
  const auto tags = tool_tags(wanted_.style);
  switch (wanted_.style) {
    case ToolStyle::kDeepSeekV3:
    case ToolStyle::kDeepSeekV31:
    case ToolStyle::kKimi:
      // A call without its section is read as well.
      return text_without(std::array{tags[0], tags[2]});
    case ToolStyle::kHermes:
    case ToolStyle::kGlm:
      return text_without(tags.first(1));
    case ToolStyle::kHarmony:
      return text_without(HarmonyParser::kBodyEnds);
    case ToolStyle::kNone:
    case ToolStyle::kLlama:
    case ToolStyle::kList:
      break;
  }
  // It does not begin as a call does, nor with Llama's tag.
  return R"([ \t\r\n]* (([^ \t\r\n<{] | "<" [^|]) [^\x00]* | "<")?)";
}

std::string CallWriter::root(const std::string& calls) {
  if (must_call()) return thought() + calls;
  const std::string other =
      wanted_.says ? grammar_.rule("said", said()) : grammar_.include(wanted_.otherwise);
  if (wanted_.style != ToolStyle::kHarmony) {
    const bool then_calls = wanted_.says && wanted_.style != ToolStyle::kLlama;
    return then_calls ? other + " (" + calls + ")?" : other + " | " + thought() + calls;
  }
  const std::string json = "(" + text(" ") + tag("<|constrain|>") + text("json") + ")? ";
  return thought() + "(" + calls + " | " + tag("<|channel|>") + text("final") + json +
         tag("<|message|>") + other + ")";
}

/// The calls with what stands around them.
std::string CallWriter::section(const std::string& call) {
  const auto calls = [&](const std::string& between) {
    return wanted_.several ? call + " (" + between + " " + call + ")*" : call;
  };
  const auto tags = tool_tags(wanted_.style);
  switch (wanted_.style) {
    case ToolStyle::kDeepSeekV3:
      return tag(tags[0]) + calls(text("\n")) + tag(tags[1]);
    case ToolStyle::kDeepSeekV31:
    case ToolStyle::kKimi:
      return tag(tags[0]) + calls("") + tag(tags[1]);
    case ToolStyle::kHermes:
    case ToolStyle::kGlm:
      return calls(text("\n"));
    case ToolStyle::kLlama:
      return calls(text("; "));
    case ToolStyle::kHarmony:
      return call;  // Its end ends the answer.
    case ToolStyle::kNone:
    case ToolStyle::kList:
      break;
  }
  return text("[") + calls(text(", ")) + text("]");
}

Result<std::string> CallWriter::write_json_call(const Tool& tool, std::string_view arguments_name) {
  auto json = arguments(tool);
  if (!json) return json;
  return text("{\"name\": \"" + tool.name + "\", \"" + std::string(arguments_name) + "\": ") +
         *json + text("}");
}

Result<std::string> CallWriter::write_call(const Tool& tool) {
  const auto tags = tool_tags(wanted_.style);
  std::string before, after;
  switch (wanted_.style) {
    case ToolStyle::kDeepSeekV3:
      before = tag(tags[2]) + text("function") + tag(tags[4]) + text(tool.name + "\n```json\n");
      after = text("\n```") + tag(tags[3]);
      break;
    case ToolStyle::kDeepSeekV31:
      before = tag(tags[2]) + text(tool.name) + tag(tags[4]);
      after = tag(tags[3]);
      break;
    case ToolStyle::kKimi:
      before = tag(tags[2]) + text("functions." + tool.name + ":") + " [0-9]{1,4} " + tag(tags[4]);
      after = tag(tags[3]);
      break;
    case ToolStyle::kHermes: {
      auto call = write_json_call(tool, "arguments");
      if (!call) return call;
      return tag(tags[0]) + text("\n") + *call + text("\n") + tag(tags[1]);
    }
    case ToolStyle::kGlm:
      return write_glm_call(tool);
    case ToolStyle::kHarmony:
      before = tag("<|channel|>") + text("commentary to=functions." + tool.name + " ") +
               tag("<|constrain|>") + text("json") + tag("<|message|>");
      break;
    case ToolStyle::kNone:
    case ToolStyle::kLlama:
    case ToolStyle::kList:
      return write_json_call(tool, "parameters");
  }
  auto json = arguments(tool);
  if (!json) return json;
  return before + *json + after;
}

std::string CallWriter::write_any_glm_call(const Tool& tool) const {
  const auto tags = tool_tags(ToolStyle::kGlm);
  const std::string any = text_without(tags);
  return tag(tags[0]) + text(tool.name + "\n") + "(" + tag(tags[2]) + any + tag(tags[3]) +
         text("\n") + tag(tags[4]) + any + tag(tags[5]) + text("\n") + ")* " + tag(tags[1]);
}

/// The properties in their order, those that need not be there optional. Others are not written.
Result<std::string> CallWriter::write_glm_call(const Tool& tool) {
  const auto tags = tool_tags(ToolStyle::kGlm);
  const std::string_view required = json_member(tool.parameters, "required");
  const std::string_view properties = json_member(tool.parameters, "properties");
  std::string call = tag(tags[0]) + text(tool.name + "\n");
  std::optional<Error> error;
  each_json_child(properties, [&](std::string_view quoted, std::string_view schema) {
    if (error) return;
    const auto name = nlohmann::json::parse(quoted, nullptr, false);
    auto value = glm_value(schema, tool.parameters);
    if (!value || !name.is_string()) {
      error = value ? invalid_argument("a property has no name") : value.error();
      return;
    }
    bool needed = false;
    each_json_child(required, [&](std::string_view, std::string_view item) {
      needed = needed || item == quoted;
    });
    const std::string pair = tag(tags[2]) + text(name.get<std::string>()) + tag(tags[3]) +
                             text("\n") + tag(tags[4]) + *value + tag(tags[5]) + text("\n");
    call += needed ? pair : "(" + pair + ")? ";
  });
  if (error) return *error;
  return call + tag(tags[1]);
}

/// Texts stand without quotes. `all`: the schema that this one is a part of.
Result<std::string> CallWriter::glm_value(std::string_view schema, std::string_view all) {
  if (json_member(schema, "type") == "\"string\"") {
    std::vector<std::string> choices;
    each_json_child(json_member(schema, "enum"), [&](std::string_view, std::string_view item) {
      const auto value = nlohmann::json::parse(item, nullptr, false);
      if (value.is_string()) choices.push_back(value.get<std::string>());
    });
    if (choices.empty()) return " " + std::string(kPlainText) + " ";
    std::string any;
    for (const std::string& choice : choices) any += (any.empty() ? "" : " | ") + text(choice);
    return " (" + any + ") ";
  }
  std::string whole(schema);
  // What it refers to are definitions of the whole.
  for (const std::string_view name : {"$defs", "definitions"}) {
    const std::string_view definitions = json_member(all, name);
    if (definitions.empty() || !whole.starts_with('{') || !json_member(whole, name).empty())
      continue;
    const bool empty = whole.find_first_not_of(" \t\r\n", 1) == whole.find('}');
    whole.insert(
        1, "\"" + std::string(name) + "\": " + std::string(definitions) + (empty ? "" : ", "));
  }
  auto json = grammar_.json_schema(whole);
  if (!json) return json;
  return " " + *json + " ";
}

}  // namespace

Result<std::string> write_tool_grammar(const CallsWanted& wanted) {
  if (wanted.tools.empty()) return invalid_argument("tools: there are none");
  return CallWriter(wanted).write();
}

}  // namespace troupe
