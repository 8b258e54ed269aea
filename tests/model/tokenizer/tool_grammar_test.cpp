#include "model/chat/tool_grammar.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/answer_parser.h"
#include "model/chat/text_without.h"
#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_matcher.h"
#include "model/grammar/grammar_writer.h"

namespace troupe {
namespace {

/// Writes a random text that a grammar matches, with tags for its tokens: a reader of the notation
/// that owes nothing to the one that is tested elsewhere.
class Derivation {
 public:
  Derivation(const std::string& grammar, std::vector<std::string> tokens, unsigned seed)
      : tokens_(std::move(tokens)), random_(seed) {
    std::size_t at = 0;
    while (at < grammar.size()) {
      const std::size_t end = std::min(grammar.find('\n', at), grammar.size());
      const std::string line = grammar.substr(at, end - at);
      const std::size_t is = line.find(" ::= ");
      if (is != std::string::npos) rules_[line.substr(0, is)] = line.substr(is + 5);
      at = end + 1;
    }
  }

  std::string text() { return of_rule("root"); }

 private:
  std::string of_rule(const std::string& name) {
    REQUIRE_MESSAGE(rules_.contains(name), name);
    const std::string& body = rules_[name];
    std::size_t at = 0;
    std::string out = choices(body, at);
    REQUIRE(at == body.size());
    return out;
  }

  static void blanks(const std::string& s, std::size_t& at) {
    while (at < s.size() && s[at] == ' ') ++at;
  }

  std::string choices(const std::string& s, std::size_t& at) {
    std::vector<std::string> all{sequence(s, at)};
    while (at < s.size() && s[at] == '|') all.push_back(sequence(s, ++at));
    return all[random_() % all.size()];
  }

  std::string sequence(const std::string& s, std::size_t& at) {
    std::string out;
    for (blanks(s, at); at < s.size() && s[at] != '|' && s[at] != ')'; blanks(s, at)) {
      const std::size_t begin = at;
      std::string one = item(s, at);
      const std::size_t end = at;
      for (std::size_t n = times(s, at); n > 0; --n) {
        std::size_t again = begin;
        out += item(s, again);
        REQUIRE(again == end);
      }
    }
    return out;
  }

  std::size_t times(const std::string& s, std::size_t& at) {
    if (at >= s.size()) return 1;
    if (s[at] == '?') return ++at, random_() % 2;
    if (s[at] == '*') return ++at, random_() % 4;
    if (s[at] == '+') return ++at, 1 + random_() % 3;
    if (s[at] != '{') return 1;
    const std::size_t low = std::stoul(s.substr(at + 1));
    const std::size_t comma = s.find(',', at), close = s.find('}', at);
    const std::size_t high = comma < close ? std::stoul(s.substr(comma + 1)) : low;
    at = close + 1;
    return low + random_() % (high - low + 1);
  }

  std::string item(const std::string& s, std::size_t& at) {
    if (s[at] == '"') return literal(s, at);
    if (s[at] == '[') return one_of_class(s, at);
    if (s[at] == '<') {
      const std::size_t id = std::stoul(s.substr(at + 2));
      at = s.find("]>", at) + 2;
      return tokens_.at(id);
    }
    if (s[at] == '(') {
      std::string out = choices(s, ++at);
      REQUIRE(s[at] == ')');
      ++at;
      return out;
    }
    const std::size_t begin = at;
    while (at < s.size() && (std::isalnum(static_cast<unsigned char>(s[at])) || s[at] == '-')) ++at;
    REQUIRE(at > begin);
    return of_rule(s.substr(begin, at - begin));
  }

  static std::string literal(const std::string& s, std::size_t& at) {
    std::string out;
    for (++at; s[at] != '"'; ++at) {
      if (s[at] != '\\') {
        out += s[at];
      } else if (s[++at] == 'n') {
        out += '\n';
      } else if (s[at] == 'x') {
        out += static_cast<char>(std::stoi(s.substr(at + 1, 2), nullptr, 16));
        at += 2;
      } else {
        out += s[at];
      }
    }
    ++at;
    return out;
  }

  /// Of a class that is negated a letter; else its first or last character.
  std::string one_of_class(const std::string& s, std::size_t& at) {
    const std::size_t close = s.find(']', at);
    const std::string members = s.substr(at + 1, close - at - 1);
    at = close + 1;
    if (members[0] == '^') return random_() % 2 == 0 ? "x" : " ";
    return std::string(1, random_() % 2 == 0 ? members.front() : members.back());
  }

  const std::vector<std::string> tokens_;
  std::map<std::string, std::string> rules_;
  std::mt19937 random_;
};

struct GrammarCase {
  ToolStyle style;
  ReasoningStart reasoning = {};
};

const GrammarCase kGrammarCases[] = {
    {ToolStyle::kDeepSeekV3},
    {ToolStyle::kDeepSeekV31, {ReasoningStyle::kThink, false, true}},
    {ToolStyle::kDeepSeekV31, {ReasoningStyle::kThink, false, false}},
    {ToolStyle::kKimi},
    {ToolStyle::kHermes, {ReasoningStyle::kThink, false, false}},
    {ToolStyle::kGlm, {ReasoningStyle::kThink, false, false}},
    {ToolStyle::kHarmony, {ReasoningStyle::kHarmony}},
    {ToolStyle::kLlama},
    {ToolStyle::kList},
};

/// Tags whose place in the list is the id of their token.
const std::vector<std::string> kTagTokens = {"<think>",        "<｜tool▁calls▁begin｜>",
                                             "<｜tool▁sep｜>", "<|tool_call_begin|>",
                                             "<|message|>",    "<|channel|>",
                                             "<arg_key>"};

CallsWanted wanted_of(const GrammarCase& c, std::vector<Tool> tools, bool several) {
  return {c.style,
          c.reasoning,
          std::move(tools),
          several,
          {},
          false,
          [](std::string_view tag) -> std::optional<TokenId> {
            const auto at = std::ranges::find(kTagTokens, tag);
            if (at == kTagTokens.end()) return std::nullopt;
            return static_cast<TokenId>(at - kTagTokens.begin());
          }};
}

}  // namespace

TEST_CASE("what a grammar of calls allows is read as calls and nothing else") {
  const ToolSketch sketch = {{"now", {}}, {"f_1", {}}};
  for (const GrammarCase& c : kGrammarCases) {
    CAPTURE(static_cast<int>(c.style));
    for (const bool several : {false, true}) {
      const auto grammar = write_tool_grammar(wanted_of(c, {{"now", ""}, {"f_1", ""}}, several));
      REQUIRE(grammar.ok());
      // A thought in tags is over before the grammar begins.
      const bool thinks = c.reasoning.style == ReasoningStyle::kThink && !c.reasoning.over;
      const std::string thought = thinks ? "<think>z</think>" : "";
      std::size_t most = 0, thoughts = 0;
      for (unsigned seed = 0; seed < 100; ++seed) {
        const std::string text = thought + Derivation(*grammar, kTagTokens, seed).text();
        CAPTURE(text);
        const auto parser = make_answer_parser({c.reasoning, c.style, sketch});
        std::vector<CallDelta> calls;
        std::string content;
        for (const AnswerDelta& delta : {parser->feed(text), parser->finish()}) {
          content += delta.content;
          thoughts += delta.reasoning.empty() ? 0 : 1;
          for (const CallDelta& call : delta.calls)
            if (!call.name.empty()) calls.push_back(call);
        }
        REQUIRE(!calls.empty());
        CHECK(content.empty());
        for (const CallDelta& call : calls) {
          CHECK(sketch.contains(call.name));
          // gpt-oss' end of a call is a token that ends the answer.
          CHECK(call.arguments == "{}");
        }
        most = std::max(most, calls.size());
      }
      CHECK((most > 1) == (several && c.style != ToolStyle::kHarmony));
      CHECK((thoughts > 0) == (thinks || c.reasoning.style == ReasoningStyle::kHarmony));
    }
  }
}

TEST_CASE("what an answer may be otherwise is content, in each form") {
  const ToolSketch sketch = {{"now", {}}};
  // Its names are those of other rules, too.
  const std::string format = "root ::= \"{}\" | \"[\" call-1 \"]\"\ncall-1 ::= \"now\"\n";
  const ReasoningStart thinks{ReasoningStyle::kThink, true, false};
  std::vector<GrammarCase> cases(std::begin(kGrammarCases), std::end(kGrammarCases));
  cases.push_back({ToolStyle::kHermes, thinks});
  cases.push_back({ToolStyle::kHarmony, {ReasoningStyle::kHarmony, true, false}});
  for (const GrammarCase& c : cases) {
    CAPTURE(static_cast<int>(c.style));
    CallsWanted wanted = wanted_of(c, {{"now", ""}}, true);
    wanted.otherwise = format;
    const auto grammar = write_tool_grammar(wanted);
    REQUIRE(grammar.ok());
    const bool thought_over = c.reasoning.style == ReasoningStyle::kThink && !c.reasoning.over;
    std::string begun = thought_over ? "<think>z</think>" : "";
    if (c.style == ToolStyle::kHarmony && c.reasoning.inside)
      begun = "<|channel|>analysis<|message|>I";
    std::size_t called = 0, answered = 0;
    for (unsigned seed = 0; seed < 100; ++seed) {
      const std::string text = begun + Derivation(*grammar, kTagTokens, seed).text();
      CAPTURE(text);
      const auto parser = make_answer_parser({c.reasoning, c.style, sketch});
      std::string content;
      std::size_t calls = 0;
      for (const AnswerDelta& delta : {parser->feed(text), parser->finish()}) {
        content += delta.content;
        calls += delta.calls.size();
      }
      CHECK(content.empty() == (calls > 0));
      if (calls == 0) CHECK((content == "{}" || content == "[now]"));
      ++(calls > 0 ? called : answered);
    }
    CHECK(called > 0);
    CHECK(answered > 0);
  }
}

TEST_CASE("where the model says what it likes, its calls are calls of these tools") {
  const ToolSketch sketch = {{"now", {}}, {"f_1", {}}};
  std::vector<GrammarCase> cases(std::begin(kGrammarCases), std::end(kGrammarCases));
  std::erase_if(cases, [](const GrammarCase& c) { return c.style == ToolStyle::kList; });
  cases.push_back({ToolStyle::kHermes, {ReasoningStyle::kThink, true, false}});
  for (const GrammarCase& c : cases) {
    CAPTURE(static_cast<int>(c.style));
    CallsWanted wanted = wanted_of(c, {{"now", ""}, {"f_1", ""}}, true);
    wanted.says = true;
    const auto grammar = write_tool_grammar(wanted);
    REQUIRE(grammar.ok());
    const bool thought_over = c.reasoning.style == ReasoningStyle::kThink && !c.reasoning.over;
    std::size_t called = 0, said = 0, both = 0;
    for (unsigned seed = 0; seed < 200; ++seed) {
      const std::string text =
          (thought_over ? "<think>z</think>" : "") + Derivation(*grammar, kTagTokens, seed).text();
      CAPTURE(text);
      const auto parser = make_answer_parser({c.reasoning, c.style, sketch});
      std::string content;
      std::size_t calls = 0;
      for (const AnswerDelta& delta : {parser->feed(text), parser->finish()}) {
        content += delta.content;
        for (const CallDelta& call : delta.calls) calls += call.name.empty() ? 0 : 1;
      }
      for (const std::string_view tag : tool_tags(c.style))
        CHECK(content.find(tag) == std::string::npos);
      called += calls > 0 ? 1 : 0;
      said += content.empty() ? 0 : 1;
      both += calls > 0 && !content.empty() ? 1 : 0;
    }
    CHECK(called > 0);
    CHECK(said > 0);
    // gpt-oss calls or answers, and what is bare JSON is the whole answer.
    const bool alone = c.style == ToolStyle::kHarmony || c.style == ToolStyle::kLlama;
    CHECK((both > 0) == !alone);
  }
}

TEST_CASE("a schema that cannot be written is named, where any arguments will not do") {
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"type": "array", "$dynamicRef": "#b"}}})";
  for (const GrammarCase& c : kGrammarCases) {
    CAPTURE(static_cast<int>(c.style));
    const auto refused = write_tool_grammar(wanted_of(c, {{"f", schema}}, true));
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().message.starts_with("tools: f: "));
    CHECK(refused.error().message.find("$dynamicRef") != std::string::npos);
    const auto written = write_tool_grammar(wanted_of(c, {{"f", schema, true}}, true));
    REQUIRE(written.ok());
    CHECK(CompiledGrammar::compile(*written).ok());
  }
}

TEST_CASE("what cannot be written of many tools takes no longer than of one") {
  std::string alternatives;
  for (int i = 1; i < 15; ++i) {
    const std::string n = std::to_string(i);
    alternatives += (i > 1 ? ", " : "") + ("{\"anyOf\": [{\"minimum\": " + n) +
                    "}, {\"maximum\": -" + n + "}, {\"pattern\": \"a" + n + "\"}]}";
  }
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"allOf": [)" + alternatives + "]}}}";
  std::vector<Tool> tools;
  for (int i = 0; i < 300; ++i) tools.push_back({"f" + std::to_string(i), schema, true});
  CHECK(write_tool_grammar(wanted_of(kGrammarCases[0], tools, true)).ok());
}

TEST_CASE("a text without tags is any that has none") {
  const std::vector<std::string_view> tags = {"<ab>", "<ac>", "<｜b｜>"};
  const auto compiled = CompiledGrammar::compile("root ::= " + text_without(tags));
  REQUIRE(compiled.ok());
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  const auto trie = TokenTrie::make({bytes.begin(), bytes.end()}, 256);
  std::mt19937 random(7);
  const std::string_view parts[] = {"<", "a", "b", "c", ">", "｜", "x", "<a", "<ab", "｜>"};
  std::size_t with = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (std::size_t n = random() % 9; n > 0; --n) text += parts[random() % std::size(parts)];
    CAPTURE(text);
    const bool has = std::ranges::any_of(
        tags, [&](std::string_view tag) { return text.find(tag) != std::string::npos; });
    GrammarMatcher matcher(*compiled, trie);
    bool taken = true;
    for (const char c : text) taken = taken && matcher.accept(static_cast<unsigned char>(c));
    CHECK((taken && matcher.complete()) == !has);
    with += has ? 1 : 0;
  }
  CHECK(with > 100);
}

TEST_CASE("the published forms of calls are written exactly") {
  const auto written = [](ToolStyle style) {
    const GrammarCase c{style};
    return Derivation(*write_tool_grammar(wanted_of(c, {{"now", ""}}, false)), kTagTokens, 1)
        .text();
  };
  CHECK(written(ToolStyle::kDeepSeekV3) ==
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
  CHECK(written(ToolStyle::kDeepSeekV31) ==
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>");
  CHECK(written(ToolStyle::kHermes) ==
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
  CHECK(written(ToolStyle::kGlm) == "<tool_call>now\n</tool_call>");
  CHECK(written(ToolStyle::kHarmony) ==
        "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}");
  CHECK(written(ToolStyle::kLlama) == R"({"name": "now", "parameters": {}})");
  CHECK(written(ToolStyle::kList) == R"([{"name": "now", "parameters": {}}])");
}

TEST_CASE("tags are tokens where the tokenizer has them") {
  const auto grammar =
      write_tool_grammar(wanted_of({ToolStyle::kDeepSeekV31}, {{"now", ""}}, true));
  REQUIRE(grammar.ok());
  CHECK(grammar->find("<[1]>") != std::string::npos);
  CHECK(grammar->find("tool▁sep") == std::string::npos);
  CHECK(grammar->find("\"<｜tool▁call▁end｜>\"") != std::string::npos);
}

TEST_CASE("GLM's texts stand without quotes, in the schema's order") {
  const std::string schema =
      R"({"type": "object", "properties": {"z": {"type": "string", "maxLength": 9}, "a b": {"type": "string",
          "enum": ["one", "two\n\"<"]}}, "required": ["z"]})";
  const auto grammar = write_tool_grammar(wanted_of({ToolStyle::kGlm}, {{"f", schema}}, false));
  REQUIRE(grammar.ok());
  std::size_t with_both = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::string text = Derivation(*grammar, kTagTokens, seed).text();
    CAPTURE(text);
    const auto parser = make_answer_parser({{}, ToolStyle::kGlm, {{"f", {"z", "a b"}}}});
    AnswerDelta delta = parser->feed(text);
    REQUIRE(delta.calls.size() == 1);
    const auto arguments = nlohmann::json::parse(delta.calls[0].arguments);
    CHECK(arguments["z"].is_string());
    if (arguments.size() == 1) continue;
    ++with_both;
    CHECK(text.find(">z<") < text.find(">a b<"));
    CHECK((arguments["a b"] == "one" || arguments["a b"] == "two\n\"<"));
  }
  CHECK(with_both > 0);
}

}  // namespace troupe
