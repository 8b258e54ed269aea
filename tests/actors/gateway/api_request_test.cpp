#include "actors/gateway/api_request.h"

#include <doctest/doctest.h>

#include <string>

#include "actors/gateway/json_body.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

const ModelFacts kModel{.served_model_name = "m", .has_tokenizer = true};
const ModelFacts kIdsOnly{.served_model_name = "m", .has_tokenizer = false};

std::string nested(int depth) {
  return "{\"prompt\":" + std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']') + "}";
}

TEST_CASE("a body that is not a fit JSON object is refused") {
  const std::string bodies[] = {
      "",
      "nonsense",
      "[]",
      "42",
      "\"text\"",
      "{\"prompt\": \"a\"",
      "{\"prompt\": \"a\"} trailing",
      "{\"prompt\": NaN}",
      "{\"prompt\": \"a\", \"temperature\": 1e999}",
      "{\"prompt\": \"a\", \"temperature\": Infinity}",
      "{\"prompt\": \"a\", \"prompt\": \"b\"}",
      "{\"prompt\": \"\xff\xfe\"}",
      "{\"prompt\": \"\xed\xa0\x80\"}",
      "{\"prompt\": \"\\ud800\"}",
      nested(10'000),
      nested(limits::kJsonDepthMax),
      std::string(1'000'000, '['),
  };
  for (const std::string& body : bodies) {
    CAPTURE(body.substr(0, 60));
    CHECK_FALSE(parse_json_body(body).ok());
    ApiRequest request;
    const auto error = parse_completion(body, kModel, request);
    REQUIRE(error);
    CHECK(error->status == 400);
    CHECK_FALSE(error->message.empty());
  }
  CHECK(parse_json_body(nested(limits::kJsonDepthMax - 1)).ok());
}

TEST_CASE("a body with too many values is refused") {
  std::string body = "{\"prompt\":[";
  for (std::size_t i = 0; i < limits::kJsonValuesMax; ++i) body += "1,";
  body += "1]}";
  CHECK_FALSE(parse_json_body(body).ok());
}

struct BadField {
  const char* body;
  const char* param;
};

TEST_CASE("a bad field of a completion is named") {
  const BadField cases[] = {
      {R"({})", "prompt"},
      {R"({"prompt": null})", "prompt"},
      {R"({"prompt": 5})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": [[]]})", "prompt"},
      {R"({"prompt": [1, "a"]})", "prompt"},
      {R"({"prompt": [1, -1]})", "prompt"},
      {R"({"prompt": [1, 1.5]})", "prompt"},
      {R"({"prompt": [1, 2147483648]})", "prompt"},
      {R"({"prompt": ["a", {}]})", "prompt"},
      {R"({"prompt": "a", "max_tokens": -1})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": "5"})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": 18446744073709551615})", "max_tokens"},
      {R"({"prompt": "a", "temperature": -0.1})", "temperature"},
      {R"({"prompt": "a", "temperature": "hot"})", "temperature"},
      {R"({"prompt": "a", "temperature": 1e300})", "temperature"},
      {R"({"prompt": "a", "top_p": 0})", "top_p"},
      {R"({"prompt": "a", "top_p": 1.01})", "top_p"},
      {R"({"prompt": "a", "top_p": 1e-60})", "top_p"},
      {R"({"prompt": "a", "top_k": -2})", "top_k"},
      {R"({"prompt": "a", "min_p": 2})", "min_p"},
      {R"({"prompt": "a", "repetition_penalty": 0})", "repetition_penalty"},
      {R"({"prompt": "a", "presence_penalty": 3})", "presence_penalty"},
      {R"({"prompt": "a", "frequency_penalty": -3})", "frequency_penalty"},
      {R"({"prompt": "a", "seed": "x"})", "seed"},
      {R"({"prompt": "a", "n": 0})", "n"},
      {R"({"prompt": "a", "n": 129})", "n"},
      {R"({"prompt": "a", "stop": 5})", "stop"},
      {R"({"prompt": "a", "stop": ""})", "stop"},
      {R"({"prompt": "a", "stop": ["a", 5]})", "stop"},
      {R"({"prompt": "a", "stop": ["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6","7"]})",
       "stop"},
      {R"({"prompt": "a", "logprobs": true})", "logprobs"},
      {R"({"prompt": "a", "logprobs": 21})", "logprobs"},
      {R"({"prompt": "a", "stream": "yes"})", "stream"},
      {R"({"prompt": "a", "echo": 1})", "echo"},
      {R"({"prompt": "a", "ignore_eos": 0})", "ignore_eos"},
      {R"({"prompt": "a", "stream_options": {"include_usage": true}})", "stream_options"},
      {R"({"prompt": "a", "stream": true, "stream_options": 1})", "stream_options"},
      {R"({"prompt": "a", "stream": true, "stream_options": {"include_usage": 1}})",
       "stream_options"},
      {R"({"prompt": "a", "model": 5})", "model"},
      // What would change the answer and is not supported.
      {R"({"prompt": "a", "n": 3, "best_of": 2})", "best_of"},
      {R"({"prompt": "a", "best_of": 0})", "best_of"},
      {R"({"prompt": "a", "best_of": 129})", "best_of"},
      {R"({"prompt": "a", "best_of": 2, "stream": true})", "best_of"},
      {R"({"prompt": "a", "prompt_logprobs": 21})", "prompt_logprobs"},
      {R"({"prompt": "a", "prompt_logprobs": -1})", "prompt_logprobs"},
      {R"({"prompt": "a", "prompt_logprobs": true})", "prompt_logprobs"},
      {R"({"prompt": "a", "prompt_logprobs": 0, "stream": true})", "prompt_logprobs"},
      {R"({"prompt": "a", "truncate_prompt_tokens": 0})", "truncate_prompt_tokens"},
      {R"({"prompt": "a", "truncate_prompt_tokens": -2})", "truncate_prompt_tokens"},
      {R"({"prompt": "a", "suffix": "b"})", "suffix"},
      {R"({"prompt": "a", "logit_bias": {"five": 1}})", "logit_bias"},
      {R"({"prompt": "a", "logit_bias": {"5": 101}})", "logit_bias"},
      {R"({"prompt": "a", "logit_bias": {"5": "1"}})", "logit_bias"},
      {R"({"prompt": "a", "logit_bias": [5]})", "logit_bias"},
      {R"({"prompt": "a", "min_tokens": -1})", "min_tokens"},
      {R"({"prompt": "a", "stop_token_ids": [3.5]})", "stop_token_ids"},
      {R"({"prompt": "a", "allowed_token_ids": "3"})", "allowed_token_ids"},
      {R"({"prompt": "a", "allowed_token_ids": []})", "allowed_token_ids"},
      {R"({"prompt": "a", "bad_words": [""]})", "bad_words"},
      {R"({"prompt": "a", "skip_special_tokens": 0})", "skip_special_tokens"},
      {R"({"prompt": "a", "include_stop_str_in_output": "x"})", "include_stop_str_in_output"},
      {R"({"prompt": "a", "use_beam_search": true})", "use_beam_search"},
      {R"({"prompt": "a", "length_penalty": 2})", "length_penalty"},
      {R"({"prompt": "a", "prefix": true})", "prefix"},
      {R"({"prompt": "a", "include_reasoning": 0})", "include_reasoning"},
      {R"({"prompt": "a", "thinking": {"type": "enabled"}})", "thinking"},
      {R"({"prompt": "a", "reasoning_effort": "high"})", "reasoning_effort"},
      {R"({"prompt": "a", "max_completion_tokens": 5})", "max_completion_tokens"},
      {R"({"prompt": "a", "top_logprobs": 5})", "top_logprobs"},
      {R"({"prompt": "a", "structural_tag": "x"})", "structural_tag"},
      {R"({"prompt": "a", "kv_transfer_params": {"a": 1}})", "kv_transfer_params"},
      {R"({"prompt": "a", "stream": true, "stream_options": {"continuous_usage_stats": 1}})",
       "stream_options"},
  };
  for (const BadField& bad : cases) {
    CAPTURE(bad.body);
    ApiRequest request;
    const auto error = parse_completion(bad.body, kModel, request);
    REQUIRE(error);
    CHECK(error->status == 400);
    CHECK(error->param == bad.param);
    CHECK(error->message.find(bad.param) != std::string::npos);
  }
}

TEST_CASE("the limits that are told are those that hold") {
  struct Told {
    const char* field;
    const char* refused;  ///< one that is out of range
    const char* limits;
    std::vector<const char*> taken;  ///< the ends of the range
  };
  const Told cases[] = {
      {"temperature", "-1", "at least 0", {"0", "3.4028234e38"}},
      {"temperature", "1e39", "a number that a float32 holds", {}},
      {"top_p", "1.5", "in (0, 1]", {"1.2e-38", "1"}},
      {"top_p", "1e-60", "a number that a float32 holds", {}},
      {"min_p", "-0.5", "in [0, 1]", {"0", "1"}},
      {"repetition_penalty", "0", "greater than 0", {"1.2e-38", "3.4028234e38"}},
      {"presence_penalty", "2.5", "in [-2, 2]", {"-2", "2"}},
      {"frequency_penalty", "-2.5", "in [-2, 2]", {"-2", "2"}},
      {"top_k", "-2", "in [-1, 2147483647]", {"-1", "0", "2147483647"}},
      {"n", "129", "in [1, 128]", {"1", "128"}},
      {"logprobs", "21", "in [0, 20]", {"0", "20"}},
      {"max_tokens", "4294967296", "in [1, 4294967295]", {"1", "4294967295"}},
      {"seed",
       "9223372036854775808",
       "in [-9223372036854775808, 9223372036854775807]",
       {"-9223372036854775808", "9223372036854775807", "1e17", "-1e18"}},
      {"priority", "1000001", "in [-1000000, 1000000]", {"-1000000", "0", "1000000"}},
      {"seed", "1e19", "in [-9223372036854775808, 9223372036854775807]", {}},
  };
  const auto read = [](const char* field, const char* value) {
    ApiRequest request;
    const std::string body = std::string(R"({"prompt": "a", ")") + field + "\": " + value + "}";
    const auto error = parse_completion(body, kModel, request);
    return error ? error->message : "";
  };
  for (const Told& told : cases) {
    CAPTURE(told.field);
    CHECK(read(told.field, told.refused).find(told.limits) != std::string::npos);
    for (const char* value : told.taken) CHECK(read(told.field, value) == "");
  }
}

TEST_CASE("a bad field of a chat is named") {
  const BadField cases[] = {
      {R"({})", "messages"},
      {R"({"messages": "hi"})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": ["hi"]})", "messages"},
      {R"({"messages": [{"content": "hi"}]})", "messages"},
      {R"({"messages": [{"role": "user"}]})", "messages"},
      {R"({"messages": [{"role": "user", "content": null}]})", "messages"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages"},
      {R"({"messages": [{"role": "function", "content": "x"}]})", "messages"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "messages"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "messages"},
      {R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]})", "messages"},
      {R"({"messages": [{"role": "user", "content": "x"}], "logprobs": 1})", "logprobs"},
      {R"({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2})", "top_logprobs"},
      {R"({"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 0})",
       "max_completion_tokens"},
      {R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 0})", "max_tokens"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{}]})", "tools"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"})",
       "tool_choice"},
      {R"({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema"}})",
       "response_format"},
      {R"({"messages": [{"role": "user", "content": "x"}], "chat_template": "x"})",
       "chat_template"},
      {R"({"messages": [{"role": "user", "content": "x"}], "include_reasoning": "yes"})",
       "include_reasoning"},
      {R"({"messages": [{"role": "user", "content": "x"}], "thinking": {"type": "enabled"}})",
       "thinking"},
      {R"({"messages": [{"role": "user", "content": "x"}], "thinking": true})", "thinking"},
      {R"({"messages": [{"role": "user", "content": "x"}], "enable_thinking": true})",
       "enable_thinking"},
      {R"({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "much"})",
       "reasoning_effort"},
      {R"({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": 3})",
       "reasoning_effort"},
      {R"({"messages": [{"role": "user", "content": "x"}], "reasoning": {"effort": "low"}})",
       "reasoning"},
      {R"({"messages": [{"role": "user", "content": "x"}], "verbosity": "loud"})", "verbosity"},
      {R"({"messages": [{"role": "user", "content": "x"}], "thinking_token_budget": 5})",
       "thinking_token_budget"},
      {R"({"messages": [{"role": "user", "content": "x"}], "mm_processor_kwargs": {"a": 1}})",
       "mm_processor_kwargs"},
      {R"({"messages": [{"role": "user", "content": "x"}], "vllm_xargs": {"a": 1}})", "vllm_xargs"},
      {R"({"messages": [{"role": "assistant", "content": "x", "prefix": 1}]})", "messages"},
      {R"({"messages": [{"role": "user", "content": "x", "prefix": true}]})", "messages"},
      {R"({"messages": [{"role": "assistant", "content": "x", "prefix": true},
                        {"role": "user", "content": "x"}]})",
       "messages"},
      {R"({"messages": [{"role": "assistant", "content": "x", "prefix": true,
                         "reasoning_content": 1}]})",
       "messages"},
      {R"({"messages": [{"role": "user", "content": "x"}], "continue_final_message": true})",
       "messages"},
      {R"({"messages": [{"role": "assistant", "content": "x"}], "continue_final_message": true,
           "add_generation_prompt": true})",
       "continue_final_message"},
      {R"({"messages": [{"role": "assistant", "content": "x", "function_call": {"name": "a b"}}]})",
       "messages"},
      {R"({"messages": [{"role": "assistant", "content": "x", "function_call": "f"}]})",
       "messages"},
      {R"({"messages": [{"role": "user", "content": "x", "function_call": {"name": "f"}}]})",
       "messages"},
      {R"({"messages": [{"role": "assistant", "content": "x", "audio": {"id": "a"}}]})",
       "messages"},
      {R"({"messages": [{"role": "assistant", "content": "x", "refusal": 1}]})", "messages"},
      {R"({"messages": [{"role": "user", "content": "x", "refusal": "no"}]})", "messages"},
      {R"({"messages": [{"role": "user", "content": "x"}], "logit_bias": {"x": 1}})", "logit_bias"},
  };
  for (const BadField& bad : cases) {
    CAPTURE(bad.body);
    ApiRequest request;
    const auto error = parse_chat(bad.body, kModel, request);
    REQUIRE(error);
    CHECK(error->status == 400);
    CHECK(error->param == bad.param);
  }
}

TEST_CASE("the fields of a completion arrive") {
  ApiRequest out;
  const auto error = parse_completion(
      R"({"model": "m", "prompt": "hi", "max_tokens": 5.0, "temperature": 0, "top_p": 0.9, "top_k": -1,
          "min_p": 0.1, "repetition_penalty": 1.5, "presence_penalty": -2, "frequency_penalty": 2,
          "seed": -1, "n": 3, "stop": "end", "ignore_eos": true, "logprobs": 2, "stream": true,
          "stream_options": {"include_usage": true}, "return_token_ids": true, "echo": true,
          "user": "ignored", "priority": -7, "logit_bias": {}, "suffix": null, "best_of": 3,
          "some_new_field": [1]})",
      kModel, out);
  REQUIRE_FALSE(error);
  REQUIRE(out.prompts.size() == 1);
  const GenerationRequest& request = out.prompts[0];
  CHECK(std::get<std::string>(request.prompt) == "hi");
  CHECK(request.max_tokens == 5u);
  CHECK(request.temperature == 0.0f);
  CHECK(request.top_p == 0.9f);
  CHECK(request.top_k == 0);
  CHECK(request.min_p == 0.1f);
  CHECK(request.repetition_penalty == 1.5f);
  CHECK(request.presence_penalty == -2.0f);
  CHECK(request.frequency_penalty == 2.0f);
  CHECK(request.seed == ~std::uint64_t{0});
  CHECK(request.n == 3);
  CHECK(request.priority == -7);
  CHECK(request.stop == std::vector<std::string>{"end"});
  CHECK(request.ignore_eos);
  CHECK(request.logprobs == 2);
  CHECK(request.prompt_logprobs == 2);
  CHECK(out.stream);
  CHECK(out.include_usage);
  CHECK(out.return_token_ids);
  CHECK(out.echo);
}

TEST_CASE("fields that ask for what is done anyway are taken") {
  const std::string messages = R"("messages": [{"role": "assistant", "content": "x", "name": "n",
      "prefix": false, "refusal": null, "audio": null, "function_call": null, "tool_calls": []}])";
  const std::string anyway = R"("verbosity": "medium", "prefix": false, "length_penalty": 1.0,
      "include_reasoning": true, "user": "u", "service_tier": "auto", "parallel_tool_calls": true,
      "metadata": {}, "cache_salt": "s")";
  const std::string thinks = R"("thinking": {"type": "enabled"}, "enable_thinking": true)";
  const std::string answers = R"("thinking": {"type": "disabled"}, "enable_thinking": false,
      "include_reasoning": false, "reasoning_effort": "none")";
  const ModelFacts reasoner{.served_model_name = "m", .has_tokenizer = true, .reasoning = true};
  ApiRequest out;
  CHECK_FALSE(parse_chat("{" + messages + "," + anyway + "}", kModel, out));
  CHECK_FALSE(parse_chat("{" + messages + "," + anyway + "," + thinks + "}", reasoner, out));
  CHECK_FALSE(parse_chat("{" + messages + "," + answers + "}", kModel, out));
  CHECK(out.prompts[0].chat_template_kwargs.empty());
  CHECK(parse_chat("{" + messages + "," + thinks + "}", kModel, out)->param == "thinking");
  CHECK_FALSE(parse_chat("{" + messages + "," + answers + "}", reasoner, out));
  CHECK(out.prompts[0].chat_template_kwargs == R"({"enable_thinking":false,"thinking":false})");
  CHECK_FALSE(out.include_reasoning);
}

TEST_CASE("what a completion leaves out stays open, except for OpenAI's 16 tokens") {
  ApiRequest out;
  REQUIRE_FALSE(parse_completion(R"({"prompt": [[1, 2], "x", [0]]})", kModel, out));
  REQUIRE(out.prompts.size() == 3);
  CHECK(std::get<std::vector<TokenId>>(out.prompts[0].prompt) == std::vector<TokenId>{1, 2});
  CHECK(std::get<std::string>(out.prompts[1].prompt) == "x");
  CHECK_FALSE(out.prompts[0].max_tokens);
  CHECK_FALSE(out.prompts[0].temperature);
  CHECK_FALSE(out.prompts[0].seed);
  CHECK(out.prompts[0].logprobs == -1);
  CHECK(out.prompts[0].prompt_logprobs == -1);
}

TEST_CASE("echo may ask for no new token") {
  ApiRequest out;
  REQUIRE_FALSE(parse_completion(R"({"prompt": [1], "max_tokens": 0, "echo": true})", kModel, out));
  CHECK(out.prompts[0].max_tokens == 0u);
  CHECK(out.logprobs == -1);
  CHECK(out.prompts[0].prompt_logprobs == 0);  // A request that generates nothing must score.
}

TEST_CASE("the fields of a chat arrive") {
  ApiRequest out;
  const auto error = parse_chat(
      R"({"messages": [{"role": "developer", "content": "be brief", "name": "n", "x": {"b": 1, "a": []},
                        "name2": null, "reasoning_content": ""},
                       {"role": "user", "content": [{"type": "text", "text": "a"},
                                                    {"type": "text", "text": "b"}]},
                       {"role": "assistant", "tool_calls": [],
                        "content": [{"type": "output_text", "text": "c"}, "d",
                                    {"type": "refusal", "refusal": "e"}]},
                       {"role": "assistant", "reasoning_content": "d", "tool_calls": [
                          {"id": "c", "function": {"name": "f", "arguments": null}}]}],
          "max_tokens": 3, "max_completion_tokens": 7, "logprobs": true, "top_logprobs": 4,
          "chat_template_kwargs": {"thinking": true},
          "tools": [{}], "tool_choice": "none", "response_format": {"type": "text"}})",
      kModel, out);
  REQUIRE_FALSE(error);
  const auto& messages = std::get<std::vector<ChatMessage>>(out.prompts.at(0).prompt);
  REQUIRE(messages.size() == 4);
  ChatMessage first{"developer", "be brief"};
  first.name = "n";
  first.more = R"({"x":{"b": 1, "a": []},"reasoning_content":""})";
  CHECK(messages[0] == first);
  ChatMessage second{"user", ""};
  second.parts = {"a", "b"};
  CHECK(messages[1] == second);
  ChatMessage third{"assistant", ""};
  third.parts = {"c", "d", "e"};
  CHECK(messages[2] == third);
  ChatMessage last{"assistant", ""};
  last.reasoning_content = "d";
  last.tool_calls = {{"c", "f", ""}};
  CHECK(messages[3] == last);
  CHECK(out.prompts[0].max_tokens == 7u);
  CHECK(out.prompts[0].logprobs == 4);
  CHECK(out.prompts[0].chat_template_kwargs == R"({"thinking":true})");
}

TEST_CASE("chat_template_kwargs must be an object") {
  ApiRequest out;
  const auto error =
      parse_chat(R"({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": [1]})",
                 kModel, out);
  REQUIRE(error);
  CHECK(error->param == "chat_template_kwargs");
}

TEST_CASE("how much to think is told to the chat template, unless that is told otherwise") {
  struct Case {
    const char* fields;
    const char* kwargs;
  };
  const Case cases[] = {
      {R"("reasoning_effort": "high")",
       R"({"enable_thinking":true,"reasoning_effort":"high","thinking":true})"},
      {R"("reasoning_effort": "minimal")",
       R"({"enable_thinking":true,"reasoning_effort":"minimal","thinking":true})"},
      {R"("reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "medium"})",
       R"({"enable_thinking":true,"reasoning_effort":"medium","thinking":true})"},
      {R"("reasoning_effort": "low", "chat_template_kwargs": {"thinking": false, "x": 1})",
       R"({"enable_thinking":true,"reasoning_effort":"low","thinking":false,"x":1})"},
      {R"("reasoning_effort": "none")", ""},
      {R"("reasoning_effort": null)", ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.fields);
    ApiRequest out;
    CHECK_FALSE(parse_chat(
        R"({"messages": [{"role": "user", "content": "x"}], )" + std::string(c.fields) + "}",
        kModel, out));
    CHECK(out.prompts.at(0).chat_template_kwargs == c.kwargs);
  }
}

TEST_CASE("an unknown model is 404") {
  ApiRequest out;
  const auto error = parse_chat(R"({"model": "gpt-5"})", kModel, out);
  REQUIRE(error);
  CHECK(error->status == 404);
  CHECK(error->code == "model_not_found");
}

TEST_CASE("without a tokenizer only ids are prompts") {
  ApiRequest out;
  CHECK_FALSE(parse_completion(R"({"prompt": [1, 2]})", kIdsOnly, out));
  CHECK(parse_completion(R"({"prompt": "a"})", kIdsOnly, out)->param == "prompt");
  CHECK(parse_completion(R"({"prompt": [[1], "a"]})", kIdsOnly, out)->param == "prompt");
  CHECK(parse_completion(R"({"prompt": [1], "stop": "a"})", kIdsOnly, out)->param == "stop");
  CHECK(parse_chat(R"({"messages": [{"role": "user", "content": "x"}]})", kIdsOnly, out)->param ==
        "messages");
  TokenizeRequest tokenize;
  CHECK(parse_tokenize(R"({"prompt": "a"})", kIdsOnly, tokenize)->status == 400);
}

TEST_CASE("lists are bounded") {
  std::string body = "{\"prompt\":[";
  for (std::size_t i = 0; i <= limits::kPromptsMax; ++i) body += i == 0 ? "\"a\"" : ",\"a\"";
  ApiRequest out;
  CHECK(parse_completion(body + "]}", kModel, out)->param == "prompt");
  body = "{\"n\":128,\"prompt\":[";
  for (std::size_t i = 0; i < 33; ++i) body += i == 0 ? "\"a\"" : ",\"a\"";
  CHECK(parse_completion(body + "]}", kModel, out)->param == "n");
  CHECK(parse_completion("{\"prompt\":\"a\",\"stop\":\"" +
                             std::string(limits::kStopStringBytesMax + 1, 'x') + "\"}",
                         kModel, out)
            ->param == "stop");
}

}  // namespace
}  // namespace troupe
