#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/answer_parser.h"

namespace troupe {
namespace {

struct Call {
  std::string name, arguments, id = {};
  bool operator==(const Call&) const = default;
};

/// A whole answer, told apart.
struct Told {
  std::string reasoning, content;
  std::vector<Call> calls;
  bool operator==(const Told&) const = default;
};

std::string shown(const Told& told) {
  nlohmann::json calls = nlohmann::json::array();
  for (const Call& call : told.calls) calls.push_back({call.name, call.arguments, call.id});
  return nlohmann::json{told.reasoning, told.content, calls}.dump();
}

/// Adds a piece as a client of the stream would.
void add_delta(Told& told, const AnswerDelta& delta) {
  told.reasoning += delta.reasoning;
  told.content += delta.content;
  for (const CallDelta& call : delta.calls) {
    if (!call.name.empty()) {
      CHECK(call.index == told.calls.size());
      told.calls.push_back({call.name, call.arguments, call.id});
    } else {
      REQUIRE(call.index + 1 == told.calls.size());
      CHECK(call.id.empty());
      told.calls.back().arguments += call.arguments;
    }
  }
}

Told told_in_pieces(const AnswerForm& form, std::string_view text, std::size_t first,
                    std::size_t piece) {
  const auto parser = make_answer_parser(form);
  Told told;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = at == 0 && first > 0 ? first : piece;
    add_delta(told, parser->feed(text.substr(at, size)));
    at += size;
  }
  add_delta(told, parser->finish());
  return told;
}

struct Answered {
  std::string text;
  Told told;
};

const ToolSketch kSketch = {{"f", {"s"}}, {"get_weather", {"city"}}, {"now", {}}};

void check_answers(ReasoningStart start, ToolStyle style, const std::vector<Answered>& answers) {
  const AnswerForm form{start, style, kSketch};
  for (const Answered& answer : answers) {
    CAPTURE(answer.text);
    const auto check = [&](std::size_t first, std::size_t piece) {
      const Told told = told_in_pieces(form, answer.text, first, piece);
      CHECK_MESSAGE(told == answer.told, shown(told), " of pieces ", first, " ", piece);
    };
    for (std::size_t piece = 1; piece <= answer.text.size() + 1; ++piece) check(0, piece);
    for (std::size_t cut = 1; cut < answer.text.size(); ++cut) check(cut, answer.text.size());
  }
}

/// What comes as content only, in every style.
const std::vector<std::string> kPlainTexts = {"Hello.", "  a < b, {c}\n", "", "\n",
                                              "x </tool_call> y"};

}  // namespace

TEST_CASE("a text without calls is content in every style") {
  for (const ToolStyle style :
       {ToolStyle::kDeepSeekV3, ToolStyle::kDeepSeekV31, ToolStyle::kKimi, ToolStyle::kHermes,
        ToolStyle::kGlm, ToolStyle::kLlama, ToolStyle::kList}) {
    std::vector<Answered> answers;
    for (const std::string& text : kPlainTexts) answers.push_back({text, {{}, text, {}}});
    check_answers({}, style, answers);
  }
}

TEST_CASE("calls of DeepSeek V3 and R1") {
  const std::string one =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
      R"({"city": "Zürich ```", "days": [1, {"x": "}"}]})"
      "\n```<｜tool▁call▁end｜>";
  const Call weather{"get_weather", R"({"city": "Zürich ```", "days": [1, {"x": "}"}]})"};
  const std::string now =
      "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>";
  check_answers(
      {}, ToolStyle::kDeepSeekV3,
      {{one + "<｜tool▁calls▁end｜>", {{}, {}, {weather}}},
       {"I look.\n\n" + one + now + "<｜tool▁calls▁end｜>",
        {{}, "I look.", {weather, {"now", "{}"}}}},
       // Cut off: within the arguments, behind them, before them.
       {one.substr(0, one.find("days")),
        {{}, {}, {{"get_weather", R"({"city": "Zürich ```", ")"}}}},
       {one.substr(0, one.find("\n```<")), {{}, {}, {weather}}},
       {one, {{}, {}, {weather}}},
       {one.substr(0, one.find("json\n")), {{}, one.substr(0, one.find("json\n")), {}}},
       {"x <｜tool▁calls▁beg", {{}, "x <｜tool▁calls▁beg", {}}},
       // No fence, no separator, no name.
       {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>now<｜tool▁call▁end｜>",
        {{}, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now<｜tool▁call▁end｜>", {}}},
       {"<｜tool▁call▁begin｜>now\n```json\n{}", {{}, "<｜tool▁call▁begin｜>now\n```json\n{}", {}}},
       {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>a b\n```json\n{}",
        {{}, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>a b\n```json\n{}", {}}},
       // A text between the tags.
       {"<｜tool▁calls▁begin｜> and so on", {{}, "<｜tool▁calls▁begin｜> and so on", {}}},
       {one + " or else", {{}, " or else", {weather}}}});
}

TEST_CASE("thoughts come before calls, and calls end a thought that was not closed") {
  const std::string call =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>";
  check_answers({ReasoningStyle::kThink, true}, ToolStyle::kDeepSeekV31,
                {{"hm</think>\n\n" + call, {"hm", {}, {{"now", "{}"}}}},
                 {"hm" + call, {"hm", {}, {{"now", "{}"}}}},
                 {call, {{}, {}, {{"now", "{}"}}}},
                 {"<think>hm" + call + "\nSo.", {"hm", "\nSo.", {{"now", "{}"}}}},
                 // The thought is closed behind the calls.
                 {"hm" + call + "\n</think>Yes</think>", {"hm", "Yes</think>", {{"now", "{}"}}}},
                 {"hm" + call + " </thin", {"hm", " </thin", {{"now", "{}"}}}},
                 // No calls, no tag, or only a part of one.
                 {"hm<｜tool▁calls▁begin｜> or", {"hm", "<｜tool▁calls▁begin｜> or", {}}},
                 {"hm <｜tool▁calls▁", {"hm <｜tool▁calls▁", {}, {}}},
                 {"hm <｜tool▁call▁begin｜>", {"hm <｜tool▁call▁begin｜>", {}, {}}},
                 {"hm </thi", {"hm </thi", {}, {}}},
                 {"hm</think>\n", {"hm", "\n", {}}}});
  check_answers(
      {ReasoningStyle::kThink, true}, ToolStyle::kDeepSeekV3,
      {{"hm\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json"
        "\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        {"hm\n", {}, {{"now", "{}"}}}}});
  check_answers({ReasoningStyle::kThink, false}, ToolStyle::kKimi,
                {{"<think>hm <|tool_calls_section_begin|><|tool_call_begin|>functions.now:0"
                  "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
                  {"hm ", {}, {{"now", "{}", "functions.now:0"}}}}});
  // Nobody offered a tool.
  check_answers({ReasoningStyle::kThink, true}, ToolStyle::kNone,
                {{"hm" + call, {"hm" + call, {}, {}}}});
  check_answers({ReasoningStyle::kThink, false}, ToolStyle::kHermes,
                {{"<think>hm <tool_call> ?</think>\n<tool_call>{\"name\": \"now\"}</tool_call>",
                  {"hm <tool_call> ?", {}, {{"now", "{}"}}}}});
}

TEST_CASE("tags in texts of arguments are text") {
  struct Form {
    ToolStyle style;
    std::string begin, end, id, after;  // Around a call of f; behind the last.
    std::vector<std::string> tags;
  };
  const Form forms[] = {
      {ToolStyle::kDeepSeekV3,
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n",
       "\n```<｜tool▁call▁end｜>",
       {},
       "<｜tool▁calls▁end｜>",
       {"<｜tool▁call▁end｜>", "```", "<｜tool▁calls▁end｜>"}},
      {ToolStyle::kDeepSeekV31,
       "<｜tool▁call▁begin｜>f<｜tool▁sep｜>",
       "<｜tool▁call▁end｜>",
       {},
       "<｜tool▁calls▁end｜>",
       {"<｜tool▁call▁end｜>", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}"}},
      {ToolStyle::kKimi,
       "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
       "<|tool_call_end|>",
       "functions.f:0",
       "<|tool_calls_section_end|>",
       {"<|tool_call_end|>", "<|tool_call_end|> <|tool_call_begin|>",
        "<|tool_calls_section_end|>"}},
      {ToolStyle::kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": ",
       "}</tool_call>",
       {},
       {},
       {"</tool_call>", "<tool_call>"}},
      {ToolStyle::kHarmony,
       "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
       "<|call|>",
       {},
       {},
       {"<|call|>", "<|end|>", "<|start|>"}},
      {ToolStyle::kLlama,
       "{\"name\": \"f\", \"parameters\": ",
       "}",
       {},
       {},
       {"}", "<|python_tag|>"}},
  };
  for (const Form& form : forms) {
    const ReasoningStart start{form.style == ToolStyle::kHarmony ? ReasoningStyle::kHarmony
                                                                 : ReasoningStyle::kNone};
    std::vector<Answered> answers;
    for (const std::string& tag : form.tags) {
      for (const std::string& json :
           {R"({"s": "a )" + tag + R"(\" b", "n": [1, ")" + tag + R"("]})",
            R"({")" + tag + R"(" : ")" + tag + "\"\n}"}) {
        answers.push_back(
            {form.begin + json + form.end + form.after, {{}, {}, {{"f", json, form.id}}}});
      }
    }
    check_answers(start, form.style, answers);
  }
}

TEST_CASE("a text that was not closed does not take the next calls along") {
  const auto call = [](const std::string& json) {
    return "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>" + json +
           "<|tool_call_end|>";
  };
  const auto f = [](const std::string& json) { return Call{"f", json, "functions.f:0"}; };
  const std::string end = "<|tool_calls_section_end|>";
  check_answers(
      {}, ToolStyle::kKimi,
      {{call(R"({"s": "a)") + call(R"({"s": "b"})") + end,
        {{}, {}, {f(R"({"s": "a)"), f(R"({"s": "b"})")}}},
       {call(R"({"s": "a)") + end, {{}, {}, {f(R"({"s": "a)")}}},
       {call(R"({"s": "a)"), {{}, {}, {f(R"({"s": "a)")}}},
       // A quote too many: from there it is no JSON.
       {call(R"({"s": "a" b"})") + call("{}") + end, {{}, {}, {f(R"({"s": "a" b"})"), f("{}")}}},
       {call(R"({"s": :"})") + call("[\"") + end, {{}, {}, {f(R"({"s": :"})"), f("[\"")}}},
       // Cut off behind the tag in a text.
       {call(R"({"s": "a)") + " b", {{}, {}, {f("{\"s\": \"a<|tool_call_end|> b")}}}});
}

TEST_CASE("calls of DeepSeek V3.1") {
  const std::string begin = "<｜tool▁calls▁begin｜>", end = "<｜tool▁calls▁end｜>";
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + arguments + "<｜tool▁call▁end｜>";
  };
  check_answers(
      {}, ToolStyle::kDeepSeekV31,
      {{begin + call("now", "{}") + call("f", R"({"s": "<｜"})") + end,
        {{}, {}, {{"now", "{}"}, {"f", R"({"s": "<｜"})"}}}},
       // No tool of this name, no JSON, no arguments: the client will say.
       {begin + call("unknown", "{\"a\" 1}") + call("now", "soon") + call("now", "") + end,
        {{}, {}, {{"unknown", "{\"a\" 1}"}, {"now", "soon"}, {"now", "{}"}}}},
       // A tag in a text that was not closed ends the call: the next one is not lost.
       {begin + call("f", R"({"s": ")") + call("now", "{}") + end,
        {{}, {}, {{"f", R"({"s": ")"}, {"now", "{}"}}}},
       {begin + "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": 1" + call("now", "{}"),
        {{}, {}, {{"f", "{\"s\": 1"}, {"now", "{}"}}}},
       {begin + call("f", "{} stray") + end, {{}, "stray", {{"f", "{}"}}}},
       {begin + end + "x", {{}, "x", {}}},
       {begin + call("a<b", "{}"), {{}, begin + call("a<b", "{}"), {}}},
       {begin + call(std::string(2000, 'a'), "{}"),
        {{}, begin + call(std::string(2000, 'a'), "{}"), {}}}});
}

TEST_CASE("calls of Kimi K2 have ids of their own") {
  const std::string begin = "<|tool_calls_section_begin|>", end = "<|tool_calls_section_end|>";
  const auto call = [](const std::string& id, const std::string& arguments) {
    return "<|tool_call_begin|>" + id + "<|tool_call_argument_begin|>" + arguments +
           "<|tool_call_end|>";
  };
  const std::string strange = begin + call("functions.now", "{}");
  check_answers(
      {}, ToolStyle::kKimi,
      {{"Let me see. " + begin + call("functions.now:0", "{}") +
            call(" functions.f:1 ", " {\"a\": [\"<|tool\"]} \n") + end,
        {{},
         "Let me see.",
         {{"now", "{}", "functions.now:0"}, {"f", "{\"a\": [\"<|tool\"]}", "functions.f:1"}}}},
       {begin + call("now:12", "{}") + end, {{}, {}, {{"now", "{}", "now:12"}}}},
       {strange, {{}, strange, {}}}});
}

TEST_CASE("calls of Qwen and Hermes") {
  const auto call = [](const std::string& json) {
    return "<tool_call>\n" + json + "\n</tool_call>";
  };
  check_answers(
      {}, ToolStyle::kHermes,
      {{"Well:\n" + call(R"({"name": "f", "arguments": {"s": "</tool_call>\"", "n": {}}})") + "\n" +
            call(R"({"name": "now", "arguments": {}})"),
        {{}, "Well:", {{"f", R"({"s": "</tool_call>\"", "n": {}})"}, {"now", "{}"}}}},
       // In any order, with other members, in quotes, without arguments.
       {call(R"({"id": [1, "}"], "arguments": {"a":1}, "type": "function", "name": "f"})"),
        {{}, {}, {{"f", R"({"a":1})"}}}},
       {call(R"({"name": "f", "arguments": "{\"a\": \"ü\"}"})"),
        {{}, {}, {{"f", R"({"a": "ü"})"}}}},
       {call(R"({"name": "now"})") + call(R"({"name":"now","parameters":null})"),
        {{}, {}, {{"now", "{}"}, {"now", "{}"}}}},
       {call(R"({"name": "unknown", "arguments": [1]})"), {{}, {}, {{"unknown", "[1]"}}}},
       // One brace too many, and a tag that was forgotten.
       {call(R"({"name": "now", "arguments": {}}})"), {{}, "}", {{"now", "{}"}}}},
       {R"(<tool_call>{"name": "now"}<tool_call>{"name": "now"})",
        {{}, {}, {{"now", "{}"}, {"now", "{}"}}}},
       // Cut off.
       {R"(<tool_call>{"name": "f", "arguments": {"s": "a)", {{}, {}, {{"f", R"({"s": "a)"}}}},
       {R"(<tool_call>{"name": "f", "argum)", {{}, R"(<tool_call>{"name": "f", "argum)", {}}},
       {"a <tool_ca", {{}, "a <tool_ca", {}}},
       // No calls.
       {call("now()"), {{}, call("now()"), {}}},
       {call(R"({"arguments": {}})"), {{}, call(R"({"arguments": {}})"), {}}},
       {call(R"({"name": 7, "arguments": {}})"), {{}, call(R"({"name": 7, "arguments": {}})"), {}}},
       {call(R"({"name": "a b"})"), {{}, call(R"({"name": "a b"})"), {}}}});
}

TEST_CASE("calls of GLM become JSON") {
  const auto pair = [](const std::string& key, const std::string& value) {
    return "<arg_key>" + key + "</arg_key>\n<arg_value>" + value + "</arg_value>\n";
  };
  const std::string weather = "<tool_call>get_weather\n" + pair("city", "Zü\"rich\n\\ 7") +
                              pair("days", " 3 ") + pair("x", "{\"a\": [null]}") +
                              pair("y", "not JSON") + "</tool_call>";
  check_answers(
      {}, ToolStyle::kGlm,
      {{"I look.\n" + weather + "\n<tool_call>now\n</tool_call>",
        {{},
         "I look.",
         {{"get_weather",
           R"({"city": "Zü\"rich\n\\ 7", "days": 3, "x": {"a": [null]}, "y": "not JSON"})"},
          {"now", "{}"}}}},
       // As GLM-4.7 does, without line breaks; a number where a text is wanted.
       {"<tool_call>f<arg_key>s</arg_key><arg_value>12</arg_value></tool_call>",
        {{}, {}, {{"f", R"({"s": "12"})"}}}},
       {"<tool_call>unknown\n" + pair("s", "12") + "</tool_call>",
        {{}, {}, {{"unknown", R"({"s": 12})"}}}},
       {"<tool_call>f\n<arg_key>a</arg_key>oops" + pair("s", "b") + "</tool_call>",
        {{}, "oops", {{"f", R"({"a": null, "s": "b"})"}}}},
       // Cut off: in a text, in JSON, in a key, in the name.
       {"<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>ab</arg",
        {{}, {}, {{"f", R"({"s": "ab</arg)"}}}},
       {"<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>[1, ", {{}, {}, {{"f", R"({"n": [1, )"}}}},
       {"<tool_call>f\n<arg_key>n", {{}, {}, {{"f", R"({"n")"}}}},
       // A value's end in a text, in JSON and without quotes; in one that was not closed.
       {"<tool_call>f\n" + pair("s", "a</arg_value> <b") +
            pair("n", R"(["</arg_value>", "\"</arg_value>"])") + "</tool_call>",
        {{}, {}, {{"f", R"({"s": "a</arg_value> <b", "n": ["</arg_value>", "\"</arg_value>"]})"}}}},
       {"<tool_call>f\n" + pair("n", "[\"a") + pair("s", "b") + "</tool_call>",
        {{}, {}, {{"f", R"({"n": "[\"a", "s": "b"})"}}}},
       {"<tool_call>f\n" + pair("n", "\"") + pair("m", "\"a\"") + "</tool_call>",
        {{}, {}, {{"f", R"({"n": "\"", "m": "a"})"}}}},
       {"<tool_call>f\n<arg_key>s</arg_key><arg_value>ab</arg_value>\n",
        {{}, {}, {{"f", R"({"s": "ab")"}}}},
       {"<tool_call>get_wea", {{}, "<tool_call>get_wea", {}}},
       {"<tool_call>{\"name\": \"f\"}\n</tool_call>",
        {{}, "<tool_call>{\"name\": \"f\"}\n</tool_call>", {}}}});
}

TEST_CASE("calls of gpt-oss go to a channel") {
  const std::string analysis = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
  check_answers(
      {ReasoningStyle::kHarmony}, ToolStyle::kHarmony,
      {{analysis +
            "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"s\": \"<|\"}",
        {"hm", {}, {{"f", "{\"s\": \"<|\"}"}}}},
       {" to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        {{}, {}, {{"f", "{}"}}}},
       {"<|channel|analysis<|message|>hm", {{}, "<|channel|analysis<|message|>hm", {}}},
       {analysis + " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        {"hm", {}, {{"f", "{}"}}}},
       {"<|channel|>commentary to=functions.now<|constrain|>json<|message|><|call|>",
        {{}, {}, {{"now", "{}"}}}},
       {analysis + "<|channel|>final<|message|>Yes.", {"hm", "Yes.", {}}},
       {analysis + "<|channel|>commentary to=python<|message|>1", {"hm1", {}, {}}}});
  // Nobody offered a tool.
  check_answers(
      {ReasoningStyle::kHarmony}, ToolStyle::kNone,
      {{analysis + "<|channel|>commentary to=functions.f<|message|>{}<|call|>", {"hm{}", {}, {}}}});
}

TEST_CASE("calls of Llama 3 are the answer, of tools that there are") {
  check_answers({}, ToolStyle::kLlama,
                {{R"({"name": "f", "parameters": {"s": "}"}})", {{}, {}, {{"f", R"({"s": "}"})"}}}},
                 {"\n<|python_tag|>"
                  R"({"name": "now", "arguments": {}}; {"name": "f", "parameters": {}})",
                  {{}, {}, {{"now", "{}"}, {"f", "{}"}}}},
                 {R"({"name": "Alice", "parameters": {}} is it)",
                  {{}, R"({"name": "Alice", "parameters": {}} is it)", {}}},
                 {R"({"age": 7})", {{}, R"({"age": 7})", {}}},
                 {"<|python_tag|>print(1)", {{}, "<|python_tag|>print(1)", {}}},
                 {R"({"name": "f", "parameters": {}} and more)", {{}, "and more", {{"f", "{}"}}}},
                 {R"({"name": "f", "parameters": {}};)", {{}, {}, {{"f", "{}"}}}},
                 {R"({"name": "f", "parameters": {"s": )", {{}, {}, {{"f", R"({"s": )"}}}},
                 {R"({"name": "f", )", {{}, R"({"name": "f", )", {}}},
                 {R"(Here: {"name": "f", "parameters": {}})",
                  {{}, R"(Here: {"name": "f", "parameters": {}})", {}}}});
}

TEST_CASE("calls that a grammar forced are a list") {
  check_answers({}, ToolStyle::kList,
                {{R"([{"name": "f", "parameters": {"s": "]"}}, {"name": "now", "parameters": {}}])",
                  {{}, {}, {{"f", R"({"s": "]"})"}, {"now", "{}"}}}},
                 {R"([{"name": "f", "parameters": {"s": 1}}, {"na)",
                  {{}, R"(, {"na)", {{"f", R"({"s": 1})"}}}},
                 {"[1, 2]", {{}, "[1, 2]", {}}}});
}

TEST_CASE("arguments are given out as they come") {
  const auto parser = make_answer_parser({{}, ToolStyle::kHermes, kSketch});
  CHECK(parser->feed("<tool_call>{\"name\": \"f\", \"arguments\": ").calls.empty());
  auto delta = parser->feed("{\"s\": ");
  REQUIRE(delta.calls.size() == 1);
  CHECK(delta.calls[0] == CallDelta{0, "f", "", "{\"s\": "});
  delta = parser->feed("\"ab");
  REQUIRE(delta.calls.size() == 1);
  CHECK(delta.calls[0] == CallDelta{0, "", "", "\"ab"});
}

}  // namespace troupe
