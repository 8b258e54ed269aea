#include "actors/gateway/request_form.h"

#include <doctest/doctest.h>

#include <string>

#include "actors/gateway/api_keys.h"
#include "actors/gateway/http_target.h"
#include "actors/gateway/token_counts.h"

namespace troupe {
namespace {

using Names = std::vector<std::shared_ptr<const RequestName>>;

std::shared_ptr<const RequestName> named(std::string form) {
  RequestName name;
  name.form = std::move(form);
  return std::make_shared<const RequestName>(std::move(name));
}

constexpr std::size_t kLen = 4096;

TEST_CASE("what an answer is written by survives") {
  const ModelFacts model{.served_model_name = "m"};
  const char* const bodies[] = {
      R"({"prompt": "a"})",
      R"({"prompt": ["a", "b \" \u00e9"], "n": 3, "echo": true, "logprobs": 2, "max_tokens": 0})",
      R"({"prompt": [[1, 2, 3], [4]], "echo": true, "return_token_ids": true})",
      R"({"prompt": [1, 2], "return_tokens_as_token_ids": true, "stop": ["x", "yz"]})",
      R"({"prompt": "a", "stream": true, "stream_options": {"include_usage": true}})",
      R"({"prompt": "a", "logprobs": 0, "n": 128, "max_tokens": 4294967295})",
      R"({"prompt": "a", "n": 2, "best_of": 5, "prompt_logprobs": 3,
          "skip_special_tokens": false})",
      R"({"prompt": "a", "stop": "x", "min_tokens": 9, "include_stop_str_in_output": true})",
      R"({"prompt": "a", "echo": true, "truncate_prompt_tokens": 7})",
      R"({"prompt": "a", "stream": true,
          "stream_options": {"include_usage": true, "continuous_usage_stats": true}})",
      R"({"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": true})",
      R"({"messages": [{"role": "assistant", "content": "", "prefix": true,
                        "reasoning_content": "a"}]})",
      R"({"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": false})",
      R"({"messages": [{"role": "user", "content": "a"}], "n": 2, "logprobs": true})",
      R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 20, "logprobs": true,
          "chat_template_kwargs": {"enable_thinking": false, "x": {"y": [1, "\""]}}})",
  };
  for (const std::string body : bodies) {
    CAPTURE(body);
    ApiRequest request;
    const bool chat = body.find("messages") != std::string::npos;
    const auto error =
        chat ? parse_chat(body, model, request) : parse_completion(body, model, request);
    REQUIRE_FALSE(error);
    if (chat) request.start = {ReasoningStyle::kThink, request.logprobs >= 0, request.n() > 1};
    Names names;
    for (std::size_t i = 0; i < request.prompts.size(); ++i)
      names.push_back(named(write_form(request, i)));
    const Result<ApiRequest> read = read_forms(names, kLen);
    REQUIRE(read.ok());
    CHECK(read->chat == request.chat);
    CHECK_FALSE(read->stream);
    CHECK(read->include_usage == request.include_usage);
    CHECK(read->echo == request.echo);
    CHECK(read->return_token_ids == request.return_token_ids);
    CHECK(read->tokens_as_ids == request.tokens_as_ids);
    CHECK(read->logprobs == request.logprobs);
    CHECK(read->continuous_usage == request.continuous_usage);
    CHECK(read->prompt_logprobs == request.prompt_logprobs);
    CHECK(read->shown == request.shown);
    CHECK(read->start.style == request.start.style);
    CHECK(read->start.inside == request.start.inside);
    CHECK(read->start.over == (request.start.over && !request.start.inside));
    REQUIRE(read->prompts.size() == request.prompts.size());
    for (std::size_t i = 0; i < request.prompts.size(); ++i) {
      const GenerationRequest &is = read->prompts[i], &was = request.prompts[i];
      CHECK(is.n == was.n);
      CHECK(is.max_tokens == was.max_tokens);
      CHECK(is.stop == was.stop);
      CHECK(is.min_tokens == was.min_tokens);
      CHECK(is.include_stop_str_in_output == was.include_stop_str_in_output);
      CHECK(is.skip_special_tokens == was.skip_special_tokens);
      if (request.echo)
        CHECK((is.truncate_prompt_tokens != 0) == (was.truncate_prompt_tokens != 0));
      const auto* text = std::get_if<std::string>(&was.prompt);
      const bool whole = was.truncate_prompt_tokens == 0;
      if (request.echo && text != nullptr)
        CHECK(std::get<std::string>(is.prompt) == (whole ? *text : ""));
      if (const auto* ids = std::get_if<std::vector<TokenId>>(&was.prompt); request.echo && ids)
        CHECK(std::get<std::vector<TokenId>>(is.prompt).size() == ids->size());
    }
    // A prompt is kept only where it is shown: of one that is truncated, its tokens are.
    if (!request.echo || request.prompts[0].truncate_prompt_tokens != 0)
      CHECK(write_form(request, 0).find("\"text\"") == std::string::npos);
  }
}

TEST_CASE("forms that no door wrote are refused") {
  for (const char* form : {"",
                           "null",
                           "[]",
                           "{",
                           R"({"n": 0})",
                           R"({"n": 129})",
                           R"({"n": "1"})",
                           R"({"n": -1})",
                           R"({"logprobs": 21})",
                           R"({"logprobs": -2})",
                           R"({"echo": 1})",
                           R"({"max_tokens": -1})",
                           R"({"max_tokens": 4294967296})",
                           R"({"echo": true, "text": 5})",
                           R"({"tokens": 33554433})",
                           R"({"tokens": 1e300})",
                           R"({"stop": [1]})",
                           R"({"start": "x"})",
                           R"({"shown": 2})",
                           R"({"prompt_logprobs": 21})",
                           R"({"stop": [""]})",
                           R"({"thoughts": 1})",
                           R"({"n": 1, "n": 2})",
                           "{\"text\": \"\xff\", \"echo\": true}"}) {
    CAPTURE(form);
    const Result<ApiRequest> read = read_forms({named(form)}, kLen);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == ErrorCode::kCorrupt);
  }
  std::string deep = R"({"x": )";
  for (int i = 0; i < 1000; ++i) deep += '[';
  CHECK_FALSE(read_forms({named(deep)}, kLen).ok());
  CHECK_FALSE(read_forms({}, kLen).ok());
  CHECK_FALSE(read_forms({nullptr, nullptr}, kLen).ok());
  CHECK_FALSE(read_forms({named(R"({"chat": true})"), named("{}")}, kLen).ok());
  CHECK_FALSE(read_forms(Names(33, named(R"({"n": 128})")), kLen).ok());
  CHECK_FALSE(read_forms({named(R"({"echo": true})"), named("no")}, kLen).ok());
  // One that was not accepted has none; what a later version adds is left aside.
  CHECK(read_forms({nullptr, named(R"({"echo": true, "text": "b"})")}, kLen)->prompts.size() == 2);
  CHECK(read_forms({named(R"({"later": 1})")}, kLen).ok());
}

TEST_CASE("counts of tokens") {
  using Counts = TokenCounts;
  CHECK(parse_token_counts("3", 1) == Counts{3});
  CHECK(parse_token_counts("3", 3) == Counts{3, 3, 3});
  CHECK(parse_token_counts("3,5,0", 3) == Counts{3, 5, 0});
  CHECK(parse_token_counts("4294967295", 1) == Counts{4294967295});
  for (const char* text : {"", ",", "3,", ",3", "3,5", "3,5,0,1", "-1", "+1", " 3", "3 ", "1.5",
                           "0x1", "4294967296", "3;5;0", "a", "3,,0"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_token_counts(text, 3));
  }
  CHECK(parse_token_counts("0:17,1:12", 2) == Counts{17, 12});
  CHECK(parse_token_counts("2:9,0:3", 3) == Counts{3, 0, 9});
  CHECK(parse_token_counts("0:5", 1) == Counts{5});
  for (const char* text : {":", "0:", ":1", "0:1,", "0:1,0:2", "3:1", "0:-1", "-1:0", "0:1,2",
                           "2,0:1", "0:1 ", "0:4294967296", "0:1:2"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_token_counts(text, 3));
  }
  CHECK(show_token_counts({3, 5, 0}) == "3,5,0");
  CHECK(show_token_counts({7}) == "7");
}

TEST_CASE("queries") {
  CHECK(parse_target("/a?b=1#c")->query == "b=1");
  CHECK(parse_target("/a#c?b=1")->query.empty());
  CHECK(parse_target("http://h/a?b")->query == "b");
  CHECK(parse_target("http://h?b=1")->path == "/");
  CHECK(parse_target("/a?b=%zz")->query == "b=%zz");  // Only who reads it minds.
  CHECK(parse_target("/a?")->query.empty());
  struct Case {
    const char *query, *value;
  };
  for (const Case& c : {Case{"from=3", "3"}, Case{"x=1&from=3%2c5&y", "3,5"},
                        Case{"from=1&from=2", "1"}, Case{"from", ""}, Case{"from=", ""},
                        Case{"from=%zz", "%zz"}, Case{"from==3", "=3"}, Case{"&&from=3", "3"}}) {
    CAPTURE(c.query);
    CHECK(query_value(c.query, "from") == c.value);
  }
  for (const char* query : {"", "xfrom=3", "fro=3", "FROM=3", "x=from", "&"})
    CHECK_FALSE(query_value(query, "from"));
  CHECK(query_count("from=1&x=2&from&fromm=3", "from") == 2);
  CHECK(query_count("x=1", "from") == 0);
  CHECK(parse_switch("true") == true);
  CHECK(parse_switch("1") == true);
  CHECK(parse_switch("false") == false);
  CHECK(parse_switch("0") == false);
  for (const char* value : {"", "TRUE", "yes", "10"}) CHECK_FALSE(parse_switch(value));
}

TEST_CASE("owners are told apart by their keys") {
  const ApiKeys none({}), two({"first", "second"});
  CHECK(none.owner("Bearer first") == 0);
  CHECK(two.owner("Bearer first") == two.owner("bearer  first"));
  CHECK(two.owner("Bearer first") != two.owner("Bearer second"));
  CHECK(two.owner("Bearer first") != 0);
}

}  // namespace
}  // namespace troupe
