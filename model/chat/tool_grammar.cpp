#include "model/chat/tool_grammar.h"

#include <array>

#include "model/chat/harmony.h"
#include "model/chat/text_arguments.h"
#include "model/chat/text_without.h"
#include "model/chat/tool_style.h"
#include "model/grammar/grammar_writer.h"

namespace troupe {
namespace {

constexpr const char* kAnyObject = R"({"type": "object"})";

/// Writes calls in one family's form.
class CallWriter {
 public:
  explicit CallWriter(const CallsWanted& wanted) : wanted_(wanted) {}

  Result<std::string> write() {
    std::vector<std::string> calls;
    for (const Tool& tool : wanted_.tools) {
      auto call = write_call(is_loose(tool) ? Tool{tool.name, kAnyObject} : tool);
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
  /// All that are tried together may take what one grammar may.
  bool is_loose(const Tool& tool) {
    if (!tool.loose) return false;
    CallWriter trial(wanted_);
    trial.grammar_.count_work_of(tried_);
    const bool written = trial.write_call(tool).ok();
    tried_.count_work_of(trial.grammar_);
    return !written;
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
  Result<std::string> write_glm_call(const Tool& tool);

  const CallsWanted& wanted_;
  GrammarWriter grammar_;
  GrammarWriter tried_;  // Its bounds alone.
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

/// Names and values in tags, texts without quotes.
Result<std::string> CallWriter::write_glm_call(const Tool& tool) {
  const auto tags = tool_tags(ToolStyle::kGlm);
  std::string members;
  if (!tool.parameters.empty()) {
    TaggedMembers form{.before_name = tag(tags[2]),
                       .before_value = tag(tags[3]) + text("\n") + tag(tags[4]),
                       .after_value = tag(tags[5]) + text("\n"),
                       .name_end = std::string(tags[3]),
                       .value_end = std::string(tags[5]),
                       .texts = text_arguments(tool.parameters)};
    auto written = grammar_.json_members(tool.parameters, form);
    if (!written) return written;
    members = std::move(*written);
  }
  return tag(tags[0]) + text(tool.name + "\n") + members + tag(tags[1]);
}

}  // namespace

Result<std::string> write_tool_grammar(const CallsWanted& wanted) {
  if (wanted.tools.empty()) return invalid_argument("tools: there are none");
  return CallWriter(wanted).write();
}

}  // namespace troupe
