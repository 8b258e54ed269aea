#include "model/chat/answer_parser.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

namespace troupe {
namespace {

struct Case {
  bool starts_inside;
  std::string_view text;
  std::string_view reasoning;
  std::string_view content;
};

constexpr Case kCases[] = {
    {true, "hm\n</think>\n\nYes.", "hm\n", "\n\nYes."},
    {true, "<think>\nhm</think>Yes", "\nhm", "Yes"},
    {true, " \n<think>hm</think>Yes", "hm", "Yes"},
    {true, "\nhm", "\nhm", ""},
    {true, "cut in </thi", "cut in </thi", ""},
    {true, "a < b </ c </think>d", "a < b </ c ", "d"},
    {true, "</think>only", "", "only"},
    {true, "x</think>y</think><think>z", "x", "y</think><think>z"},
    {true, "x <think> y</think>z", "x <think> y", "z"},
    {true, "x<</think>y", "x<", "y"},
    {true, "", "", ""},
    {true, "  ", "  ", ""},
    {false, "Yes.", "", "Yes."},
    {false, "\n\nYes </think>", "", "\n\nYes </think>"},
    {false, "<think>hm</think>Yes", "hm", "Yes"},
    {false, "\n<think>\nhm\n</think>\nYes", "\nhm\n", "\nYes"},
    {false, "<thin", "", "<thin"},
    {false, "<thing>", "", "<thing>"},
    {false, "  ", "", "  "},
};

/// Answers of gpt-oss; the generation prompt is "<|start|>assistant".
constexpr Case kHarmonyCases[] = {
    {false,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
     "hm", "Yes."},
    {false, "<|channel|>final<|message|>Yes.<|return|>", "", "Yes."},
    {false, "<|channel|>analysis<|message|>a < b<|en", "a < b<|en", ""},
    {false,
     "<|channel|>analysis<|message|>1<|end|><|start|>assistant<|channel|>commentary to=f "
     "<|constrain|>json<|message|>{}<|call|>",
     "1{}", ""},
    {false, "<|channel|>final<|message|>a <|b|> c<|end|><|start|>assistant<|chan", "", "a <|b|> c"},
    {false, "Plain <|x", "", "Plain <|x"},
    {false, "<", "", "<"},
    {false, "", "", ""},
};

void check_however_cut(const Case& c, ReasoningStyle style) {
  for (std::size_t piece = 1; piece <= c.text.size() + 1; ++piece) {
    const auto parser = make_answer_parser({.reasoning = {style, c.starts_inside}});
    std::string reasoning;
    std::string content;
    for (std::size_t i = 0; i < c.text.size(); i += piece) {
      const AnswerDelta delta = parser->feed(c.text.substr(i, piece));
      reasoning += delta.reasoning;
      content += delta.content;
    }
    const AnswerDelta last = parser->finish();
    CAPTURE(c.text);
    CAPTURE(piece);
    CHECK(reasoning + last.reasoning == c.reasoning);
    CHECK(content + last.content == c.content);
  }
}

}  // namespace

TEST_CASE("thoughts and content are told apart however the text is cut") {
  for (const Case& c : kCases) check_however_cut(c, ReasoningStyle::kThink);
}

TEST_CASE("channels are told apart however the text is cut") {
  for (const Case& c : kHarmonyCases) check_however_cut(c, ReasoningStyle::kHarmony);
}

TEST_CASE("content is what stands before the text that is held") {
  struct Form {
    ReasoningStyle thoughts;
    ToolStyle tools;
    std::string_view text;
  };
  const Form forms[] = {
      {ReasoningStyle::kThink, ToolStyle::kNone, "<think>one</think>two <b> </thi three"},
      {ReasoningStyle::kThink, ToolStyle::kHermes,
       "<think>one</think>\n\ntwo <<tool_ca\n three<tool_call>\n{\"name\": \"f\", \"arguments\": "
       "{}}</tool_call>\nfour <"},
      {ReasoningStyle::kNone, ToolStyle::kHermes, "<tool_call>{\"no\": 1} two"},
      {ReasoningStyle::kNone, ToolStyle::kGlm, "one <tool_call>two words\nthree"},
      {ReasoningStyle::kNone, ToolStyle::kDeepSeekV31, "one <｜tool▁calls▁begin｜>two three <｜t"},
      {ReasoningStyle::kThink, ToolStyle::kKimi,
       "<think>one<|tool_calls_section_begin|><|tool_calls_section_end|></think>two"},
      {ReasoningStyle::kNone, ToolStyle::kLlama, " {\"name\": \"g\"} two"},
      {ReasoningStyle::kHarmony, ToolStyle::kHarmony,
       "<|channel|>analysis<|message|>one<|end|><|start|>assistant<|channel|>final<|message|>"
       "two <|en three<|return|>"},
  };
  for (const Form& form : forms) {
    CAPTURE(form.text);
    const auto parser = make_answer_parser(
        {.reasoning = {form.thoughts}, .tools = form.tools, .sketch = {{"f", {}}}});
    std::size_t contents = 0;
    const auto check = [&](const std::string& content, std::size_t end) {
      REQUIRE(content.size() <= end);
      CHECK(form.text.substr(end - content.size(), content.size()) == content);
      contents += content.empty() ? 0 : 1;
    };
    for (std::size_t i = 0; i < form.text.size(); ++i) {
      const std::string content = parser->feed(form.text.substr(i, 1)).content;
      REQUIRE(parser->held() <= i + 1);
      check(content, i + 1 - parser->held());
    }
    const std::size_t held = parser->held();
    const std::string rest = parser->finish().content;
    check(rest, form.text.size() - held + std::min(held, rest.size()));
    CHECK(contents > 0);
  }
}

TEST_CASE("what is repeated without end is looked at once") {
  const std::string blanks(64, ' ');
  const AnswerForm forms[] = {
      {.reasoning = {ReasoningStyle::kThink, true}},
      {.tools = ToolStyle::kLlama},
      {.tools = ToolStyle::kGlm, .sketch = {{"f", {"a"}}}},
  };
  for (const AnswerForm& form : forms) {
    const auto parser = make_answer_parser(form);
    if (form.tools == ToolStyle::kGlm)
      (void)parser->feed("<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>");
    for (int i = 0; i < 100'000; ++i) (void)parser->feed(blanks);
    CHECK(parser->held() >= 100'000 * blanks.size());
  }
}

TEST_CASE("text is given out as soon as it is decided") {
  const auto parser = make_answer_parser({.reasoning = {ReasoningStyle::kThink, true}});
  CHECK(parser->feed("so").reasoning == "so");
  CHECK(parser->feed("<").reasoning.empty());
  CHECK(parser->feed("b").reasoning == "<b");
  CHECK(parser->feed("</think").reasoning.empty());
  CHECK(parser->feed(">\n").content == "\n");
  CHECK(parser->feed("<").content == "<");
}

}  // namespace troupe
