#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "model/chat/chat_format.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

ChatFormat tool_format(const std::string& text) {
  ChatTemplateFile file;
  file.text = text;
  auto format = ChatFormat::make(file);
  REQUIRE_MESSAGE(format.ok(), format.error().message);
  return *format;
}

const std::vector<ChatMessage> kCalled = {
    {"user", "x"},
    {"assistant", "", {{"c1", "f", R"({"b": "Z\u00fc", "a": [1, null]})"}}},
    {"tool", "sunny", {}, "c1", "f"}};

constexpr std::string_view kOneTool =
    R"([{"type": "function", "function": {"name": "f", "description": "Does.",
         "parameters": {"type": "object", "b": 1, "a": "é"}}}])";

std::string rendered(const ChatFormat& format, const std::vector<ChatMessage>& chat,
                     std::string_view tools = kOneTool) {
  ChatOptions options;
  options.tools = tools;
  const auto text = format.render(chat, options);
  REQUIRE_MESSAGE(text.ok(), text.error().message);
  return *text;
}

}  // namespace

TEST_CASE("the demo's template tells tools, calls and what the tools said") {
  const auto format = ChatFormat::load(testing::source_path("tools/demo/pocket-dictionary"));
  REQUIRE(format.ok());
  CHECK(format->tool_style() == ToolStyle::kDeepSeekV31);
  const std::vector<ChatMessage> chat = {
      {"system", "Be brief."},
      {"user", "What is brandy?"},
      {"assistant", "", {{"c", "define", R"({"word": "brandy"})"}}},
      {"tool", "a drink", {}, "c"}};
  constexpr const char* kTools =
      R"([{"function": {"name": "define", "description": "Look it up.",
           "parameters": {"properties": {"word": {}, "sense": {}}}}},
          {"function": {"name": "f"}}])";
  CHECK(rendered(*format, chat, kTools) ==
        "<｜begin▁of▁sentence｜>Be brief.\n\n## Tools\n- define(word, sense): Look it up.\n- f(): \n"
        "<｜User｜>What is brandy?<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>define"
        "<｜tool▁sep｜>{\"word\": \"brandy\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        "<｜end▁of▁sentence｜><｜tool▁output▁begin｜>a drink<｜tool▁output▁end｜><｜Assistant｜><think>\n");
}

TEST_CASE("calls in the history are written as the template wants them") {
  // As GLM's and Llama's: an object, and a text where there is no content.
  const ChatFormat items = tool_format(
      "{{ tools | length if tools else 0 }}{% for m in messages %}[{{ m.content }}"
      "{% for c in m.tool_calls or [] %}{{ c.id }} {{ c.type }} {{ c.function.name }}"
      "{% for k, v in c.function.arguments.items() %} {{ k }}={{ v | tojson }}{% endfor %}"
      "{% endfor %}|{{ m.tool_call_id }}|{{ m.name }}]{% endfor %}");
  CHECK(rendered(items, kCalled) == R"(1[x||][c1 function f b="Zü" a=[1, null]||][sunny|c1|f])");
  // As DeepSeek's: a text, and no content.
  const ChatFormat text = tool_format(
      "{% for m in messages %}[{% if m.tool_calls %}{% if m.content is none %}-{% endif %}"
      "{% for c in m.tool_calls %}{{ '<｜tool▁calls▁begin｜>' + c.function.arguments }}{% endfor %}"
      "{% else %}{{ m.content }}{% endif %}]{% endfor %}");
  CHECK(rendered(text, kCalled, "") ==
        R"([x][-<｜tool▁calls▁begin｜>{"b": "Z\u00fc", "a": [1, null]}][sunny])");
  // An object and None where both are right.
  const ChatFormat either = tool_format(
      "{% for m in messages %}{{ m.content or '' }}{{ m.content is none }}"
      "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor "
      "%}");
  CHECK(rendered(either, kCalled, "") == R"(xFalseTrue{"b": "Zü", "a": [1, null]}sunnyFalse)");
  // An answer that said something and called.
  std::vector<ChatMessage> chat = kCalled;
  chat[1].content = "I look.";
  CHECK(rendered(either, chat, "").find("I look.False") != std::string::npos);
  // What is no JSON stays a text.
  chat[1].tool_calls[0].arguments = "{\"b";
  CHECK(rendered(either, chat, "").find(R"("{\"b")") != std::string::npos);
}

TEST_CASE("the form of calls is told by the template") {
  const std::pair<const char*, ToolStyle> cases[] = {
      {"{{ tools }}<｜tool▁calls▁begin｜>```json", ToolStyle::kDeepSeekV3},
      {"{{ tools }}<｜tool▁calls▁begin｜>", ToolStyle::kDeepSeekV31},
      {"{{ tools }}<|tool_calls_section_begin|>", ToolStyle::kKimi},
      {"{{ tools }}<|im_system|>tool_declare", ToolStyle::kKimi},
      {"{{ tools }}<|channel|>", ToolStyle::kHarmony},
      {"{{ tools }}<tool_call>", ToolStyle::kHermes},
      {"{{ tools }}<tool_call><arg_key>", ToolStyle::kGlm},
      {"{{ tools }}<tool_call><function=", ToolStyle::kNone},
      {"{{ tools }}<|start_header_id|>\"parameters\": ", ToolStyle::kLlama},
      {"{{ tools }}", ToolStyle::kNone},
      // It neither shows tools nor takes a system message.
      {"<tool_call>{{ messages[-1].content }}", ToolStyle::kNone},
  };
  for (const auto& [text, style] : cases) {
    CAPTURE(text);
    CHECK(tool_format(text).tool_style() == style);
  }
}

TEST_CASE("where the template does not tell of tools, the system message does") {
  const std::string turns = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  const ChatFormat v31 = tool_format(turns + "{# <｜tool▁calls▁begin｜> #}");
  CHECK(v31.tool_style() == ToolStyle::kDeepSeekV31);
  std::string text = rendered(v31, {{"system", "S"}, {"user", "x"}});
  CHECK(
      text.starts_with("[system]S\n\n## Tools\nYou have access to the following tools:\n\n### f\n"
                       "Description: Does.\n\n"
                       R"(Parameters: {"type": "object", "b": 1, "a": "é"})"
                       "\n\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n"
                       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>"
                       "tool_call_arguments<｜tool▁call▁end｜>{{additional_tool_calls}}"
                       "<｜tool▁calls▁end｜>\n"));
  CHECK(text.ends_with("[user]x"));
  CHECK(rendered(v31, {{"user", "x"}}).starts_with("[system]## Tools"));
  CHECK(rendered(v31, {{"user", "x"}}, "[]") == "[user]x");
  const ChatFormat v3 = tool_format(turns + "{# <｜tool▁calls▁begin｜>```json #}");
  CHECK(rendered(v3, {{"user", "x"}}).find("function<｜tool▁sep｜><function_name>\n```json") !=
        std::string::npos);
  // One that has no form for calls hears of the list that a grammar makes of its answer.
  const ChatFormat none = tool_format(turns);
  CHECK(none.tool_style() == ToolStyle::kNone);
  CHECK(rendered(none, {{"user", "x"}}).find("JSON list of calls") != std::string::npos);
  // What the template tells itself is left to it.
  const ChatFormat own = tool_format(turns + "{{ tools | length if tools else '' }}<tool_call>");
  CHECK(rendered(own, {{"user", "x"}}) == "[user]x1<tool_call>");
}

}  // namespace troupe
