// What an answer must look like, as bodies ask for it.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "actors/gateway/api_request.h"
#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_matcher.h"

namespace troupe {
namespace {

const ModelFacts kFacts{.served_model_name = "m", .has_tokenizer = true};

std::string asking(const std::string& fields) {
  return R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}";
}

/// Whether the grammar that the fields ask for has this text as a whole.
bool takes(const std::string& fields, const std::string& answer) {
  ApiRequest request;
  const auto error = parse_chat(asking(fields), kFacts, request);
  REQUIRE_MESSAGE(!error, (error ? error->message : ""));
  const auto grammar = CompiledGrammar::compile(request.prompts.at(0).grammar);
  REQUIRE_MESSAGE(grammar.ok(), (grammar.ok() ? "" : grammar.error().message));
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  GrammarMatcher matcher(*grammar, TokenTrie::make({bytes.begin(), bytes.end()}, 256));
  for (const char c : answer)
    if (!matcher.accept(static_cast<unsigned char>(c))) return false;
  return matcher.complete();
}

TEST_CASE("formats of all doors become grammars") {
  const std::string schema =
      R"({"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "boolean"}},
          "required": ["z", "a"], "additionalProperties": false})";
  for (const std::string& fields : {
           R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true,
              "schema": )" + schema + "}}",
           R"("response_format": {"type": "json_object", "schema": )" + schema + "}",
           R"("structured_outputs": {"json": )" + schema + "}",
           R"("guided_json": )" + schema,
       }) {
    CAPTURE(fields);
    CHECK(takes(fields, R"({"z": 12, "a": true})"));
    CHECK(takes(fields, R"({"z":12,"a":false})"));
    // Properties come in the order in which they were written.
    CHECK_FALSE(takes(fields, R"({"a": true, "z": 12})"));
    CHECK_FALSE(takes(fields, R"({"z": 12})"));
    CHECK_FALSE(takes(fields, R"({"z": 12, "a": true} )"));
  }
  CHECK(takes(R"("guided_json": "{\"type\": \"null\"}")", "null"));
  CHECK(takes(R"("json_schema": "{\"type\": \"null\"}")", "null"));
  const char* const any_object = R"("response_format": {"type": "json_object"})";
  CHECK(takes(any_object, R"({"x": [1, {"y": null}]})"));
  CHECK_FALSE(takes(any_object, "[1]"));
  CHECK(takes(R"("structured_outputs": {"json_object": true})", "{}"));
  for (const char* regex :
       {R"("guided_regex": "[a-c]+\\d")", R"("regex": "[a-c]+\\d", "grammar": "")",
        R"("structured_outputs": {"regex": "[a-c]+\\d"})"}) {
    CHECK(takes(regex, "abc7"));
    CHECK_FALSE(takes(regex, "abc"));
  }
  for (const char* choice : {R"("guided_choice": ["yes", "yes, but"])",
                             R"("structured_outputs": {"choice": ["yes", "yes, but"]})"}) {
    CHECK(takes(choice, "yes"));
    CHECK(takes(choice, "yes, but"));
    CHECK_FALSE(takes(choice, "yes,"));
  }
  for (const char* grammar :
       {R"("guided_grammar": "root ::= \"a\" root?")",
        R"("ebnf": "root ::= \"a\" root?", "regex": "")", R"("grammar": "root ::= \"a\" root?")",
        R"("structured_outputs": {"grammar": "root ::= \"a\" root?"})"})
    CHECK(takes(grammar, "aaa"));
}

TEST_CASE("a format may be of the thought, too") {
  const auto of_thought = [](const char* fields) {
    ApiRequest request;
    REQUIRE_FALSE(parse_chat(asking(fields), kFacts, request));
    CHECK_FALSE(request.prompts.at(0).grammar.empty());
    return request.prompts.at(0).grammar_in_thought;
  };
  CHECK(of_thought(R"("structured_outputs": {"enable_in_reasoning": true, "regex": "a"})"));
  CHECK(of_thought(R"("structured_outputs": {"enable_in_reasoning": true}, "guided_regex": "a")"));
  CHECK(of_thought(R"("structured_outputs": {"enable_in_reasoning": true},
                      "response_format": {"type": "json_object"})"));
  CHECK_FALSE(of_thought(R"("structured_outputs": {"enable_in_reasoning": false, "regex": "a"})"));
  CHECK_FALSE(of_thought(R"("structured_outputs": {"enable_in_reasoning": null, "regex": "a"})"));
  CHECK_FALSE(of_thought(R"("guided_regex": "a")"));
}

TEST_CASE("formats that ask for nothing, for too much and for what cannot be") {
  for (const char* fields : {R"("response_format": {"type": "text"})", R"("response_format": null)",
                             R"("guided_json": null)"}) {
    ApiRequest request;
    CHECK_FALSE(parse_chat(asking(fields), kFacts, request));
    CHECK(request.prompts.at(0).grammar.empty());
  }
  const std::pair<const char*, const char*> wrong[] = {
      {R"("response_format": "json")", "response_format"},
      {R"("response_format": {"type": "yaml"})", "response_format"},
      {R"("response_format": {"type": "json_schema"})", "response_format"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})",
       "response_format"},
      {R"("response_format": {"type": "json_schema", "json_schema": [1]})", "response_format"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": 5}})",
       "response_format"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema":
          {"type": "array", "uniqueItems": true, "items": {"type": "object"}}}})",
       "response_format"},
      {R"("structured_outputs": [])", "structured_outputs"},
      {R"("structured_outputs": {})", "structured_outputs"},
      {R"("structured_outputs": {"structural_tag": "x"})", "structured_outputs"},
      {R"("structured_outputs": {"json": {}, "regex": "a"})", "structured_outputs"},
      {R"("structured_outputs": {"enable_in_reasoning": 1, "regex": "a"})", "structured_outputs"},
      {R"("structured_outputs": {"enable_in_reasoning": true})", "structured_outputs"},
      {R"("structured_outputs": {"enable_in_reasoning": true, "regex": "a"},
          "tools": [{"type": "function", "function": {"name": "f"}}])",
       "structured_outputs"},
      {R"("guided_json": 5)", "guided_json"},
      {R"("guided_json": "{")", "guided_json"},
      {R"("guided_regex": "(")", "guided_regex"},
      {R"("guided_regex": "(?=a)b")", "guided_regex"},
      {R"("guided_choice": [])", "guided_choice"},
      {R"("guided_choice": ["a", 1])", "guided_choice"},
      {R"("guided_grammar": "")", "guided_grammar"},
      {R"("guided_choice": ["a"], "guided_regex": "a")", "guided_choice"},
  };
  for (const auto& [fields, param] : wrong) {
    CAPTURE(fields);
    ApiRequest request;
    const auto error = parse_chat(asking(fields), kFacts, request);
    REQUIRE(error);
    CHECK(error->status == 400);
    CHECK(error->param == param);
  }
  ApiRequest request;
  const auto error =
      parse_completion(R"({"prompt": [1], "guided_regex": "a"})",
                       {.served_model_name = "m", .has_tokenizer = false}, request);
  REQUIRE(error);
  CHECK(error->status == 400);
}

TEST_CASE("rules for tokens arrive") {
  ApiRequest request;
  REQUIRE_FALSE(parse_completion(
      R"({"prompt": "a", "min_tokens": 2, "stop_token_ids": [3], "allowed_token_ids": [4, 5],
          "bad_words": ["b"], "logit_bias": {"6": -100, "7": 0.5}})",
      kFacts, request));
  const GenerationRequest& read = request.prompts.at(0);
  CHECK(read.min_tokens == 2);
  CHECK(read.stop_token_ids == std::vector<TokenId>{3});
  CHECK(read.allowed_token_ids == std::vector<TokenId>{4, 5});
  CHECK(read.bad_words == std::vector<std::string>{"b"});
  CHECK(read.logit_bias == std::vector<TokenBias>{{6, -100}, {7, 0.5f}});
}

}  // namespace
}  // namespace troupe
