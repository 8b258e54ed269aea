// Of ChatFormat: how a conversation with tools is written. What templates want of it they do not
// say; it is found by rendering short conversations.
#include <algorithm>
#include <array>

#include "model/chat/chat_format.h"

namespace troupe {
namespace {

using jinja::Dict;
using jinja::Value;

/// As in the model card of DeepSeek-V3.1; its own template leaves this to the client.
constexpr const char* kDeepSeekV31Tools =
    R"(## Tools
You have access to the following tools:

{% for tool in tools %}
### {{ tool.function.name }}
Description: {{ tool.function.description or '' }}

Parameters: {{ tool.function.parameters | tojson if tool.function.parameters else '{}' }}

{% endfor %}
IMPORTANT: ALWAYS adhere to this exact format for tool use:
)"
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>"
    "tool_call_arguments<｜tool▁call▁end｜>{{ '{{additional_tool_calls}}' }}<｜tool▁calls▁end｜>"
    R"(

Where:

- `tool_call_name` must be an exact match to one of the available tools
- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema
- For multiple tool calls, chain them directly without separators or spaces
)";

/// As in the template that vLLM publishes for V3 (tool_chat_template_deepseekv3.jinja).
constexpr const char* kDeepSeekV3Tools =
    R"(# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>

For function call returns, you should first print <｜tool▁calls▁begin｜>
For each function call, you should return object like:
<｜tool▁call▁begin｜>function<｜tool▁sep｜><function_name>
```json
<function_arguments_in_json_format>
```<｜tool▁call▁end｜>
At the end of function call returns, you should print <｜tool▁calls▁end｜><｜end▁of▁sentence｜>)";

/// For templates that know no tools, where a grammar makes the answer a list of calls.
constexpr const char* kListTools =
    R"(You may call these functions:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with a JSON list of calls: )"
    R"([{"name": function name, "parameters": object of arguments}, ...])";

const char* tools_text(ToolStyle style) {
  switch (style) {
    case ToolStyle::kDeepSeekV3:
      return kDeepSeekV3Tools;
    case ToolStyle::kDeepSeekV31:
      return kDeepSeekV31Tools;
    default:
      return kListTools;
  }
}

constexpr std::string_view kProbeTools =
    R"([{"type": "function", "function": {"name": "f", "description": "d",
         "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}])";

}  // namespace

void ChatFormat::learn_tools(std::string_view source) {
  learn_call_form();
  const ToolStyle style = tool_style_of(source);
  const ChatMessage hello{"user", "x"};
  ChatOptions options;
  const auto without = render({&hello, 1}, options);
  options.tools = kProbeTools;
  const auto with = render({&hello, 1}, options);
  tool_style_ = style;
  if (!without || !with || *with != *without) return;
  auto told = jinja::Template::parse(tools_text(style));
  if (!told) return;
  tells_tools_ = std::move(*told);
  const auto now = render({&hello, 1}, options);
  if (now && *now != *without) return;
  // It takes no system message, either.
  tells_tools_.reset();
  tool_style_ = ToolStyle::kNone;
}

/// The first form of which the template makes something: no error, and none of Python's own ways to
/// show a None or a dict. An object and None come first, as servers that run Python give them.
void ChatFormat::learn_call_form() {
  const std::array<ChatMessage, 3> chat = {
      {{"user", "x"},
       {"assistant", "", {{"functions.f:0", "f", R"({"a": 1})"}}},
       {"tool", "y", {}, "functions.f:0", "f"}}};
  ChatOptions options;
  options.tools = kProbeTools;
  for (const bool text : {false, true}) {
    for (const bool none : {true, false}) {
      form_.arguments_are_text = text;
      form_.content_is_none = none;
      const auto prompt = render(chat, options);
      if (prompt && prompt->find("None") == std::string::npos &&
          prompt->find("{'a'") == std::string::npos)
        return;
    }
  }
  form_.arguments_are_text = form_.content_is_none = false;
}

Result<std::vector<ChatMessage>> ChatFormat::with_tools_told(std::span<const ChatMessage> messages,
                                                             const Value& tools) const {
  Dict variables;
  variables.set("tools", tools);
  auto text = tells_tools_->render(variables, 0);
  if (!text) return text.error();
  std::vector<ChatMessage> told(messages.begin(), messages.end());
  const auto last = std::find_if(told.rbegin(), told.rend(), [this](const ChatMessage& message) {
    return role_of(message) == "system";
  });
  if (last == told.rend()) {
    told.insert(told.begin(), ChatMessage{"system", std::move(*text)});
  } else {
    last_text(*last) += "\n\n" + *text;
  }
  return told;
}

}  // namespace troupe
