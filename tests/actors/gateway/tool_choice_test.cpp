#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_matcher.h"
#include "tests/actors/gateway/asked_tools.h"
#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

/// Whether a grammar has this text as a whole.
bool matches(const std::string& grammar, const std::string& text) {
  const auto compiled = CompiledGrammar::compile(grammar);
  REQUIRE_MESSAGE(compiled.ok(), (compiled.ok() ? "" : compiled.error().message));
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  GrammarMatcher matcher(*compiled, TokenTrie::make({bytes.begin(), bytes.end()}, 256));
  for (const char c : text)
    if (!matcher.accept(static_cast<unsigned char>(c))) return false;
  return matcher.complete();
}

/// A tool with a schema that no grammar can keep.
json untold(bool strict) {
  json tool = kNow;
  tool["function"]["parameters"] = {
      {"type", "object"},
      {"properties", {{"a", {{"type", "array"}, {"$dynamicRef", "#b"}}}}}};
  if (strict) tool["function"]["strict"] = true;
  return tool;
}

std::string call_of(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}

}  // namespace

TEST_CASE("what must be called is in the grammar") {
  Stand stand({}, model_that_calls());
  const auto grammar = [&](const json& more) {
    REQUIRE(stand.client().post("/v1/chat/completions", asked(more)).status == 200);
    return stand.service.seen().back().grammar;
  };
  CHECK(grammar(json::object()).empty());
  CHECK(grammar({{"tool_choice", "auto"}}).empty());
  const std::string all = grammar({{"tool_choice", "required"}});
  CHECK(all.find("now") != std::string::npos);
  CHECK(all.find("get_weather") != std::string::npos);
  const auto several = [](const std::string& text) {  // by the root, in the first line
    return text.substr(0, text.find('\n')).find(")*") != std::string::npos;
  };
  CHECK(several(all));
  const std::string one =
      grammar({{"tool_choice", {{"type", "function"}, {"function", {{"name", "now"}}}}}});
  CHECK(one.find("now") != std::string::npos);
  CHECK(one.find("get_weather") == std::string::npos);
  CHECK_FALSE(several(one));
  CHECK_FALSE(several(grammar({{"tool_choice", "required"}, {"parallel_tool_calls", false}})));
}

TEST_CASE("where the answer has a format, the model may call instead") {
  Stand stand({}, model_that_calls());
  const json format = {
      {"type", "json_schema"},
      {"json_schema",
       {{"name", "x"}, {"schema", {{"type", "object"}, {"properties", json::object()}}}}}};
  const auto grammar = [&](json more) {
    more["response_format"] = format;
    REQUIRE(stand.client().post("/v1/chat/completions", asked(more)).status == 200);
    return stand.service.seen().back();
  };
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  for (const json& choice : {json(), json("auto")}) {
    const GenerationRequest seen = grammar({{"tool_choice", choice}});
    CHECK(seen.grammar_of_calls);
    for (const std::string& text : {std::string("{}"), call, call + "\n" + call}) {
      CAPTURE(text);
      CHECK(matches(seen.grammar, text));
    }
    for (const std::string& text :
         {std::string(), "{}" + call, call + "{}", std::string("I look.")})
      CHECK_FALSE(matches(seen.grammar, text));
  }
  const std::string one = grammar({{"parallel_tool_calls", false}}).grammar;
  CHECK(matches(one, call));
  CHECK_FALSE(matches(one, call + "\n" + call));
  const std::string forced = grammar({{"tool_choice", "required"}}).grammar;
  CHECK(matches(forced, call));
  CHECK_FALSE(matches(forced, "{}"));
  const std::string none = grammar({{"tool_choice", "none"}}).grammar;
  CHECK(matches(none, "{}"));
  CHECK_FALSE(matches(none, call));
}

TEST_CASE("a schema that cannot be kept is named where it must be") {
  const auto ask = [&](json more, ToolStyle style = ToolStyle::kHermes) {
    Stand stand({}, model_that_calls(style));
    return stand.client().post("/v1/chat/completions", asked(std::move(more)));
  };
  const json format = {{"type", "json_object"}};
  CHECK(ask({{"tools", {untold(false)}}}).status == 200);
  CHECK(ask({{"tools", {untold(false)}}, {"response_format", format}}).status == 200);
  CHECK(ask({{"tools", {untold(true)}}, {"tool_choice", "none"}}).status == 200);
  for (const json& more : {json{{"tools", {untold(true)}}},
                           json{{"tools", {untold(true)}}, {"response_format", format}},
                           json{{"tools", {untold(false)}}, {"tool_choice", "required"}}}) {
    CAPTURE(more.dump());
    const HttpResponse refused = ask(more);
    CHECK(refused.status == 400);
    CHECK(refused.json()["error"]["param"] == "tools");
    CHECK(refused.body.find("now: ") != std::string::npos);
    CHECK(refused.body.find("$dynamicRef") != std::string::npos);
  }
  CHECK(ask({{"response_format", format}}, ToolStyle::kNone).status == 400);
}

TEST_CASE("strict arguments satisfy their schema, and a text may come before") {
  Stand stand({}, model_that_calls());
  json strict = kWeather;
  strict["function"]["strict"] = true;
  const auto seen = [&](const json& more) {
    REQUIRE(stand.client().post("/v1/chat/completions", asked(more)).status == 200);
    return stand.service.seen().back();
  };
  CHECK(seen({{"tools", {kWeather, kNow}}}).grammar.empty());
  const GenerationRequest request = seen({{"tools", {strict, untold(false)}}});
  CHECK(request.grammar_of_calls);
  CHECK(request.tools.find("\"strict\":true") != std::string::npos);
  const std::string good = call_of("get_weather", R"({"city": "Bern"})");
  for (const std::string& text : {std::string(), std::string("I look <tool_ and 1 < 2.\n"), good,
                                  "I look.\n" + good + "\n" + good, "<tool" + good,
                                  call_of("now", R"({"a": [2], "b": {}})")}) {
    CAPTURE(text);
    CHECK(matches(request.grammar, text));
  }
  for (const std::string& text :
       {std::string("<tool_call>"), call_of("get_weather", R"({"city": 7})"),
        call_of("get_weather", R"({"town": "Bern"})"), call_of("other", "{}"), good + "Done.",
        "I look.\n" + call_of("now", "[]")}) {
    CAPTURE(text);
    CHECK_FALSE(matches(request.grammar, text));
  }
  const std::string one = seen({{"tools", {strict}}, {"parallel_tool_calls", false}}).grammar;
  CHECK(matches(one, "Yes." + good));
  CHECK_FALSE(matches(one, good + "\n" + good));
  // Beside a format the answer is in it, or calls.
  const std::string either =
      seen({{"tools", {strict}}, {"guided_regex", "[a-z]{3}"}, {"tool_choice", "auto"}}).grammar;
  CHECK(matches(either, "abc"));
  CHECK(matches(either, good));
  CHECK_FALSE(matches(either, "abc" + good));
  CHECK_FALSE(matches(either, call_of("get_weather", R"({"city": 7})")));
}

TEST_CASE("of allowed tools alone some is called, and all are told") {
  Stand stand({}, model_that_calls());
  const auto allowed = [](const char* mode, const json& tools) {
    return json{
        {"tool_choice",
         {{"type", "allowed_tools"}, {"allowed_tools", {{"mode", mode}, {"tools", tools}}}}}};
  };
  const auto tool = [](const char* name) {
    return json{{"type", "function"}, {"function", {{"name", name}}}};
  };
  const auto seen = [&](const json& more) {
    REQUIRE(stand.client().post("/v1/chat/completions", asked(more)).status == 200);
    return stand.service.seen().back();
  };
  const std::string now = call_of("now", "{}"), other = call_of("get_weather", R"({"city": "x"})");
  const GenerationRequest free = seen(allowed("auto", json::array({tool("now")})));
  CHECK(json::parse(free.tools).size() == 2);
  CHECK(matches(free.grammar, "Hm."));
  CHECK(matches(free.grammar, "Hm.\n" + now + "\n" + now));
  CHECK_FALSE(matches(free.grammar, other));
  const GenerationRequest must = seen(allowed("required", json::array({tool("now")})));
  CHECK(json::parse(must.tools).size() == 2);
  CHECK(matches(must.grammar, now + "\n" + now));
  CHECK_FALSE(matches(must.grammar, "Hm."));
  CHECK_FALSE(matches(must.grammar, other));
  CHECK(matches(seen(allowed("required", json::array({tool("now"), tool("get_weather")}))).grammar,
                other));
  const json bad[] = {
      allowed("none", json::array({tool("now")})),
      allowed("auto", json::array()),
      allowed("auto", json::array({tool("nobody")})),
      allowed("auto", json::array({json{{"type", "function"}, {"name", "now"}}})),
      allowed("auto", json::array({json{{"type", "mcp"}, {"server_label", "x"}}})),
      {{"tool_choice", {{"type", "allowed_tools"}}}},
  };
  for (const json& more : bad) {
    CAPTURE(more.dump());
    const HttpResponse refused = stand.client().post("/v1/chat/completions", asked(more));
    CHECK(refused.status == 400);
    CHECK(refused.json()["error"]["param"] == "tool_choice");
  }
}

TEST_CASE("what must call is in no other form") {
  Stand stand({}, model_that_calls());
  const json named = {{"type", "function"}, {"function", {{"name", "now"}}}};
  for (const json& choice : {json("required"), named}) {
    for (const json& format :
         {json{{"guided_regex", "[a-z]"}}, json{{"structured_outputs", {{"choice", {"a"}}}}},
          json{{"guided_json", {{"type", "object"}}}}, json{{"ebnf", "root ::= \"a\""}}}) {
      json more = format;
      more["tool_choice"] = choice;
      const HttpResponse refused = stand.client().post("/v1/chat/completions", asked(more));
      CHECK(refused.status == 400);
      CHECK(refused.json()["error"]["param"] == format.begin().key());
      CHECK(refused.body.find("tool_choice") != std::string::npos);
    }
    // This one is of the content alone, of which there is none.
    const json body =
        asked({{"tool_choice", choice}, {"response_format", {{"type", "json_object"}}}});
    REQUIRE(stand.client().post("/v1/chat/completions", body).status == 200);
    CHECK(matches(stand.service.seen().back().grammar, call_of("now", "{}")));
    CHECK_FALSE(matches(stand.service.seen().back().grammar, "{}"));
  }
}

}  // namespace troupe::testing
