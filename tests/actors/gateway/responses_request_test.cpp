// A Response's request: it asks for what a chat asks for.
#include "actors/gateway/responses_request.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "actors/gateway/request_form.h"
#include "actors/gateway/responses_input.h"
#include "actors/gateway/responses_items.h"

namespace troupe {
namespace {

using nlohmann::json;

ModelFacts response_facts() {
  return {.served_model_name = "m", .reasoning = true, .tools = ToolStyle::kHermes};
}

/// What came before resp_1; there is nothing else.
std::optional<ApiError> recall_one(const std::string& id, std::string& messages) {
  if (id != "resp_1") return ApiError{.status = 404, .message = "no " + id};
  messages = R"([{"role":"user","content":"first"},{"role":"assistant","content":"done"}])";
  return std::nullopt;
}

/// The items of resp_1.
std::optional<ApiError> recall_its_item(const std::string& id, json& item) {
  if (id == "busy") return ApiError{.status = 503, .message = "busy"};
  const json items = json::parse(R"([
      {"id": "rs_1_0", "type": "reasoning", "summary": [],
       "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"id": "msg_1_1", "type": "message", "role": "assistant",
       "content": [{"type": "output_text", "text": "said", "annotations": [], "logprobs": []}]},
      {"id": "fc_1_2", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
      {"id": "fco_1_in_0", "type": "function_call_output", "call_id": "b", "output": "q"}])");
  for (const json& one : items)
    if (one["id"] == id) item = one;
  return item.is_null() ? std::optional(bad_field("", "there is none")) : std::nullopt;
}

const Recall kRecall{.response = recall_one, .item = recall_its_item};

struct ChatOfResponse {
  const char *response, *chat;
};
constexpr ChatOfResponse kChats[] = {
    {R"({"input": "hi"})", R"({"messages": [{"role": "user", "content": "hi"}]})"},
    {R"({"input": "hi", "instructions": "Be brief.", "max_output_tokens": 7, "temperature": 0.5,
         "top_p": 0.25, "seed": 3, "model": "m", "user": "u", "store": true, "truncation":
         "disabled", "background": false, "service_tier": "auto", "stop": ["x"]})",
     R"({"messages": [{"role": "system", "content": "Be brief."},
                      {"role": "user", "content": "hi"}],
         "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.25, "seed": 3,
         "stop": ["x"]})"},
    {R"({"input": [{"role": "developer", "content": "d"},
                   {"type": "message", "role": "user", "content":
                      [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
                   {"type": "reasoning", "id": "rs", "summary": [], "content":
                      [{"type": "reasoning_text", "text": "hm"}]},
                   {"type": "message", "id": "msg", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "c", "annotations": []}]},
                   {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                   {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
                   {"type": "function_call_output", "call_id": "c1", "output": "r"},
                   {"type": "function_call_output", "call_id": "c2", "output":
                      [{"type": "input_text", "text": "s"}]},
                   {"type": "reasoning", "id": "rs", "summary": []},
                   {"type": "reasoning", "id": "rs", "summary": [], "content":
                      [{"type": "reasoning_text", "text": "a"},
                       {"type": "reasoning_text", "text": "b"}]},
                   {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"}]})",
     R"({"messages": [
           {"role": "developer", "content": "d"},
           {"role": "user", "content": [{"type": "text", "text": "a"},
                                        {"type": "text", "text": "b"}]},
           {"role": "assistant", "content": [{"type": "text", "text": "c"}],
            "reasoning_content": "hm", "tool_calls": [
              {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
              {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
           {"role": "tool", "tool_call_id": "c1", "content": "r"},
           {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "s"}]},
           {"role": "assistant", "reasoning_content": "ab", "tool_calls": [
              {"id": "c3", "type": "function", "function":
                 {"name": "f", "arguments": "{}"}}]}]})"},
    {R"({"input": [{"id": "fco_1_in_0"},
                   {"type": "item_reference", "id": "rs_1_0"},
                   {"type": null, "id": "msg_1_1"},
                   {"type": "item_reference", "id": "fc_1_2"},
                   {"type": "function_call_output", "call_id": "c", "output": "r"}]})",
     R"({"messages": [{"role": "tool", "tool_call_id": "b", "content": "q"},
           {"role": "assistant", "content": [{"type": "text", "text": "said"}],
            "reasoning_content": "hm", "tool_calls": [{"id": "c", "type": "function", "function":
              {"name": "f", "arguments": "{}"}}]},
           {"role": "tool", "tool_call_id": "c", "content": "r"}]})"},
    {R"({"input": "then", "previous_response_id": "resp_1", "instructions": "new"})",
     R"({"messages": [{"role": "system", "content": "new"}, {"role": "user", "content": "first"},
                      {"role": "assistant", "content": "done"},
                      {"role": "user", "content": "then"}]})"},
    {R"({"input": "hi", "tools": [{"type": "function", "name": "f", "strict": true, "parameters":
           {"type": "object", "properties": {"b": {"type": "string"}, "a": {}}}}],
         "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false})",
     R"({"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function",
           "function": {"name": "f", "strict": true, "parameters":
           {"type": "object", "properties": {"b": {"type": "string"}, "a": {}}}}}],
         "tool_choice": {"type": "function", "function": {"name": "f"}},
         "parallel_tool_calls": false})"},
    {R"({"input": "hi", "tools": [], "tool_choice": "none"})",
     R"({"messages": [{"role": "user", "content": "hi"}]})"},
    {R"({"input": "hi", "text": {"format": {"type": "json_schema", "name": "n", "strict": true,
           "schema": {"type": "object", "properties": {"z": {"type": "integer"},
                      "a": {"type": "null"}}}}, "verbosity": "medium"}})",
     R"({"messages": [{"role": "user", "content": "hi"}], "verbosity": "medium",
           "response_format": {"type":
           "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties":
           {"z": {"type": "integer"}, "a": {"type": "null"}}}}}})"},
    {R"({"input": "hi", "text": {"format": {"type": "json_object"}}})",
     R"({"messages": [{"role": "user", "content": "hi"}],
         "response_format": {"type": "json_object"}})"},
    {R"({"input": "hi", "text": {"format": {"type": "text"}}})",
     R"({"messages": [{"role": "user", "content": "hi"}]})"},
    {R"({"input": "hi", "tools": [{"type": "function", "name": "f", "strict": true},
                                  {"type": "function", "name": "g", "strict": null}],
         "tool_choice": {"type": "allowed_tools", "mode": "auto",
                         "tools": [{"type": "function", "name": "f"}]}})",
     R"({"messages": [{"role": "user", "content": "hi"}],
         "tools": [{"type": "function", "function": {"name": "f", "strict": true}},
                   {"type": "function", "function": {"name": "g", "strict": null}}],
         "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto",
                         "tools": [{"type": "function", "function": {"name": "f"}}]}}})"},
    {R"({"input": "hi", "reasoning": {"effort": "low", "summary": "auto"},
         "include": ["reasoning.encrypted_content"], "top_logprobs": 0})",
     R"({"messages": [{"role": "user", "content": "hi"}], "reasoning_effort": "low"})"},
    {R"({"input": "hi", "reasoning": {"summary": "concise"}, "truncation": "auto",
         "include": ["file_search_call.results", "web_search_call.action.sources"],
         "text": {"verbosity": "low"}, "chat_template_kwargs": {"a": 1}})",
     R"({"messages": [{"role": "user", "content": "hi"}], "truncate_prompt_tokens": -1,
         "chat_template_kwargs": {"a": 1}, "verbosity": "low"})"},
    {R"({"input": "hi", "include": ["message.output_text.logprobs"]})",
     R"({"messages": [{"role": "user", "content": "hi"}], "logprobs": true})"},
    {R"({"input": "hi", "include": ["message.output_text.logprobs"], "top_logprobs": 3})",
     R"({"messages": [{"role": "user", "content": "hi"}], "logprobs": true, "top_logprobs": 3})"},
    {R"({"input": "hi", "top_logprobs": 3})",
     R"({"messages": [{"role": "user", "content": "hi"}], "logprobs": true, "top_logprobs": 3})"},
    {R"({"input": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
                   {"role": "user", "content": []}],
         "text": {"verbosity": "high"}, "chat_template_kwargs": {"verbosity": "x"}})",
     R"({"messages": [{"role": "assistant", "content": [{"type": "text", "text": "no"}]},
                      {"role": "user", "content": ""}],
         "chat_template_kwargs": {"verbosity": "x"}})"},
};

TEST_CASE("a Response asks for what this chat asks for") {
  for (const ChatOfResponse& c : kChats) {
    CAPTURE(c.response);
    ApiRequest response, chat;
    const auto error = parse_response(c.response, response_facts(), kRecall, response);
    if (error) MESSAGE(error->message);
    REQUIRE_FALSE(error);
    REQUIRE_FALSE(parse_chat(c.chat, response_facts(), chat));
    REQUIRE(response.prompts.size() == 1);
    const GenerationRequest &is = response.prompts[0], &should = chat.prompts[0];
    CHECK(is.prompt == should.prompt);
    CHECK(is.max_tokens == should.max_tokens);
    CHECK(is.truncate_prompt_tokens == should.truncate_prompt_tokens);
    CHECK(is.temperature == should.temperature);
    CHECK(is.top_p == should.top_p);
    CHECK(is.logprobs == should.logprobs);
    CHECK(response.logprobs == chat.logprobs);
    CHECK(is.seed == should.seed);
    CHECK(is.stop == should.stop);
    CHECK(is.grammar == should.grammar);
    CHECK(is.chat_template_kwargs == should.chat_template_kwargs);
    CHECK(json::parse("[" + is.tools + "]") == json::parse("[" + should.tools + "]"));
    CHECK(response.calls.several == chat.calls.several);
    CHECK(response.calls.sketch == chat.calls.sketch);
    CHECK(response.forced.size() == chat.forced.size());
    for (std::size_t i = 0; i < chat.forced.size(); ++i) {
      CHECK(response.forced[i].parameters == chat.forced[i].parameters);
      CHECK(response.forced[i].loose == chat.forced[i].loose);
    }
    CHECK(response.may_answer == chat.may_answer);
    CHECK_FALSE(chat.response);
    CHECK(response.response);
  }
}

TEST_CASE("what a Response cannot have is named by its own name") {
  struct Case {
    const char *more, *param, *said;
  };
  const Case cases[] = {
      {R"("input": 5)", "input", "text or a list"},
      {R"("input": [])", "input", "at least one"},
      {R"("input": null)", "input", "text or a list"},
      {R"("input": [5])", "input", "input[0] must be an object"},
      {R"("input": ["a", {}])", "input", "input[0]"},
      {R"("input": [{"role": "user"}])", "input", "input[0].content"},
      {R"("input": [{"role": "tool", "content": "a"}])", "input", "input[0].role"},
      {R"("input": [{"role": "user", "content": "a"}, {"type": "web_search_call", "id": "x"}])",
       "input", "input[1].type 'web_search_call' is not supported"},
      {R"("input": [{"type": "item_reference", "id": "x"}])", "input",
       "input[0].id 'x' names no item that can be taken: there is none; send the item itself."},
      {R"("input": [{"type": "item_reference", "id": "rs_1_0"}])", "input", "nothing but thoughts"},
      {R"("input": [{"type": "reasoning", "summary": []}])", "input", "nothing but thoughts"},
      {R"("input": [{"type": "item_reference"}])", "input", "input[0].id must"},
      {R"("input": [{"type": "item_reference", "id": "busy"}])", "", "busy"},
      {R"("input": [{"type": 5}])", "input", "input[0].type"},
      {R"("input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])",
       "input", "input[0].content[0].type 'input_image' is not supported"},
      {R"("input": [{"role": "user", "content": [{"type": "input_text"}]}])", "input", "[0].text"},
      {R"("input": [{"type": "function_call", "name": "f", "arguments": "{}"}])", "input",
       "input[0].call_id"},
      {R"("input": [{"type": "function_call", "call_id": "c", "name": "a b", "arguments": ""}])",
       "input", "input[0].name"},
      {R"("input": [{"type": "function_call_output", "call_id": "c"}])", "input", "[0].output"},
      {R"("tools": [{"type": "web_search"}])", "tools", "\"web_search\""},
      {R"("tools": [{"type": "function", "name": "f"}, {"type": "file_search"}])", "tools",
       "tools[1].type"},
      {R"("tools": [{"type": "function", "name": "a b"}])", "tools", "tools[0].name must be"},
      {R"("tools": [5])", "tools", "tools[0]"},
      {R"("tools": {"type": "function"})", "tools", "list"},
      {R"("tool_choice": "required")", "tool_choice", "only with tools"},
      {R"("tool_choice": {"type": "file_search"})", "tool_choice", "must be"},
      {R"("tools": [{"type": "function", "name": "f", "strict": 1}])", "tools",
       "tools[0].strict must be"},
      {R"("tools": [{"type": "function", "name": "f"}],
          "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []})",
       "tool_choice", "tool_choice.tools must be a list"},
      {R"("tools": [{"type": "function", "name": "f"}],
          "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]})",
       "tool_choice", "tool_choice.mode must be"},
      {R"("tools": [{"type": "function", "name": "f"}], "tool_choice":
          {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]})",
       "tool_choice", "not in tools"},
      {R"("background": true)", "background", "not supported"},
      {R"("conversation": "conv_1")", "conversation", "not supported"},
      {R"("prompt": {"id": "p"})", "prompt", "not supported"},
      {R"("truncation": "middle")", "truncation", "auto or disabled"},
      {R"("n": 2)", "n", "not supported"},
      {R"("max_tokens": 5)", "max_tokens", "not supported"},
      {R"("response_format": {"type": "json_object"})", "response_format", "not supported"},
      {R"("top_logprobs": 21)", "top_logprobs", "top_logprobs must be"},
      {R"("include": ["message.output_text.logprob"])", "include", "include must be"},
      {R"("logprobs": true)", "logprobs", "not supported"},
      {R"("max_output_tokens": 0)", "max_output_tokens", "max_output_tokens must be"},
      {R"("max_output_token": 5)", "max_output_token", "did you mean 'max_output_tokens'"},
      {R"("temperature": -1)", "temperature", "temperature must be"},
      {R"("text": {"format": {"type": "xml"}})", "text", "text.format must have the type"},
      {R"("text": {"format": {"type": "json_schema", "name": "n"}})", "text",
       "text.format has no schema"},
      {R"("text": {"format": {"type": "json_schema", "schema": {"type": 5}}})", "text",
       "text.format"},
      {R"("text": {"verbosity": "none"})", "text", "text: verbosity must be"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs", "must be an object"},
      {R"("text": "json")", "text", "text must be an object"},
      {R"("reasoning": {"effort": "enormous"})", "reasoning", "reasoning.effort must be"},
      {R"("reasoning": {"summary": "long"})", "reasoning", "reasoning.summary must be"},
      {R"("reasoning": "low")", "reasoning", "reasoning must be an object"},
      {R"("metadata": {"a": 1})", "metadata", "metadata must be"},
      {R"("metadata": "a")", "metadata", "metadata must be"},
      {R"("instructions": 5)", "instructions", "must be a string"},
      {R"("previous_response_id": 5)", "previous_response_id", "must be a string"},
      {R"("previous_response_id": "resp_2")", "", "no resp_2"},
      {R"("store": "no")", "store", "must be true or false"},
      {R"("model": "other")", "model", "does not exist"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.more);
    std::string body = std::string("{") + c.more;
    if (body.find("\"input\"") == std::string::npos) body += R"(, "input": "hi")";
    ApiRequest request;
    auto error = parse_response(body + "}", response_facts(), kRecall, request);
    REQUIRE(error);
    CHECK(error->param == c.param);
    CAPTURE(error->message);
    CHECK(error->message.find(c.said) != std::string::npos);
  }
}

TEST_CASE("items are taken by their ids so many times") {
  json input = json::array();
  ApiRequest request;
  for (int i = 0; i < 128; ++i) input.push_back({{"type", "item_reference"}, {"id", "msg_1_1"}});
  CHECK_FALSE(parse_response(json({{"input", input}}).dump(), response_facts(), kRecall, request));
  input.push_back(input.back());
  const auto error =
      parse_response(json({{"input", input}}).dump(), response_facts(), kRecall, request);
  REQUIRE(error);
  CHECK(error->message.starts_with("input[128]"));
}

TEST_CASE("what a Response repeats of its request") {
  ApiRequest request;
  const std::string body = R"({"input": "hi", "temperature": 0.5, "metadata": {"k": "v"},
      "tools": [{"type": "function", "name": "f"}], "tool_choice": "auto", "max_output_tokens": 9,
      "text": {"format": {"type": "json_object"}}, "reasoning": {"effort": "high"}})";
  REQUIRE_FALSE(parse_response(body, response_facts(), kRecall, request));
  const json echo = json::parse(request.response->echo), asked = json::parse(body);
  for (const char* name : {"temperature", "metadata", "tools", "tool_choice", "max_output_tokens"})
    CHECK(echo[name] == asked[name]);
  CHECK(echo["text"] == json({{"format", asked["text"]["format"]}, {"verbosity", "medium"}}));
  CHECK(echo["truncation"] == "disabled");
  CHECK(echo["reasoning"] == json({{"effort", "high"}, {"summary", nullptr}}));
  CHECK(echo["store"] == true);
  CHECK(echo["top_p"].is_null());
  CHECK(echo["parallel_tool_calls"] == true);
  CHECK(json::parse(request.response->messages).size() == 1);

  // All of it comes back from a request's name.
  RequestName name;
  name.form = write_form(request, 0);
  const auto read = read_forms({std::make_shared<const RequestName>(name)}, 4096);
  REQUIRE(read.ok());
  REQUIRE(read->response);
  CHECK(read->response->echo == request.response->echo);
  CHECK(read->response->messages == request.response->messages);

  REQUIRE_FALSE(
      parse_response(R"({"input": "hi", "store": false})", response_facts(), kRecall, request));
  CHECK(request.response->messages.empty());
}

TEST_CASE("items of messages that no door wrote are refused") {
  for (const char* messages :
       {"[", "[5]", R"([{"role": 5}])", R"([{"role": "user", "content": [5]}])",
        R"([{"role": "user", "content": [{"text": 5}]}])", R"([{"tool_calls": [5]}])",
        R"([{"role": "tool", "tool_call_id": []}])"})
    CHECK_FALSE(write_input_items("resp_1", messages, "").ok());
  CHECK(write_input_items("resp_1", "[]", "").ok());
}

TEST_CASE("forms of Responses that no door wrote are refused") {
  for (const char* form :
       {R"({"response": 5})", R"({"response": []})", R"({"response": {}})",
        R"({"response": {"echo": 5}})", R"({"response": {"echo": "["}})",
        R"({"response": {"echo": "[]"}})", R"({"response": {"echo": "{}", "messages": "[}"}})",
        R"({"response": {"echo": "{}", "messages": 5}})"}) {
    CAPTURE(form);
    RequestName name;
    name.form = form;
    const auto read = read_forms({std::make_shared<const RequestName>(name)}, 4096);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == ErrorCode::kCorrupt);
  }
}

TEST_CASE("lists are joined") {
  CHECK(join_json_lists("[]", "[]") == "[]");
  CHECK(join_json_lists("[1]", "[]") == "[1]");
  CHECK(join_json_lists("[]", "[2]") == "[2]");
  CHECK(join_json_lists("[1]", "[2,3]") == "[1,2,3]");
}

}  // namespace
}  // namespace troupe
