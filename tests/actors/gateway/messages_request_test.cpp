// A Message's request: it asks for what a chat asks for.
#include "actors/gateway/messages_request.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "actors/gateway/request_form.h"

namespace troupe {
namespace {

using nlohmann::json;

ModelFacts message_facts() {
  return {.served_model_name = "m", .reasoning = true, .tools = ToolStyle::kHermes};
}

struct SameRequest {
  const char *message, *chat;
};

const SameRequest kConversations[] = {
    {R"({"max_tokens": 7, "messages": [{"role": "user", "content": "hi"}]})",
     R"({"max_tokens": 7, "messages": [{"role": "user", "content": "hi"}]})"},
    {R"({"model": "m", "max_tokens": 9, "system": "Be brief.", "temperature": 0.5, "top_p": 0.25,
         "top_k": 4, "stop_sequences": ["x", "y"], "metadata": {"user_id": "u"}, "seed": 3,
         "service_tier": "auto", "cache_control": {"type": "ephemeral"},
         "context_management": {"edits": []}, "mcp_servers": [], "some_new_beta": {"a": 1},
         "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                      {"role": "user", "content": "c"}]})",
     R"({"max_tokens": 9, "temperature": 0.5, "top_p": 0.25, "top_k": 4, "stop": ["x", "y"],
         "seed": 3, "messages": [{"role": "system", "content": "Be brief."},
         {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
         {"role": "user", "content": "c"}]})"},
    // Blocks, thoughts, calls and what came of them.
    {R"({"max_tokens": 1, "system": [{"type": "text", "text": "x-anthropic-billing-header: 1;"},
           {"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
         "messages": [
           {"role": "user", "content": [{"type": "text", "text": "a"},
              {"type": "text", "text": ""}, {"type": "text", "text": "b"}]},
           {"role": "assistant", "content": [
              {"type": "thinking", "thinking": "hm", "signature": "x"},
              {"type": "redacted_thinking", "data": "x"},
              {"type": "text", "text": "c"},
              {"type": "tool_use", "id": "t1", "name": "f", "input": {"z": 1, "a": 2}},
              {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]},
           {"role": "user", "content": [
              {"type": "tool_result", "tool_use_id": "t1", "content": "r"},
              {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": [
                 {"type": "text", "text": "s"}, {"type": "text", "text": "t"}]},
              {"type": "text", "text": "d"}]},
           {"role": "user", "content": "e"}]})",
     R"({"max_tokens": 1, "messages": [
           {"role": "system", "content": "s"},
           {"role": "user", "content": [{"type": "text", "text": "a"},
                                        {"type": "text", "text": "b"}]},
           {"role": "assistant", "content": "c", "reasoning_content": "hm", "tool_calls": [
              {"id": "t1", "type": "function",
               "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}},
              {"id": "t2", "type": "function",
               "function": {"name": "g", "arguments": "{}"}}]},
           {"role": "tool", "tool_call_id": "t1", "content": "r"},
           {"role": "tool", "tool_call_id": "t2", "is_error": true, "content": [
              {"type": "text", "text": "s"}, {"type": "text", "text": "t"}]},
           {"role": "user", "content": [{"type": "text", "text": "d"},
                                        {"type": "text", "text": "e"}]}]})"},
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [
           {"type": "tool_result", "tool_use_id": "t"}]}]})",
     R"({"max_tokens": 1, "messages": [{"role": "tool", "tool_call_id": "t",
                                        "content": ""}]})"},
    // What the system says later stays where it is.
    {R"({"max_tokens": 1, "system": "s", "messages": [{"role": "system", "content": "t"},
           {"role": "user", "content": "a"}, {"role": "system", "content": "u"},
           {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f",
                                              "input": {}}]},
           {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                                         "content": "r"}]},
           {"role": "system", "content": [{"type": "text", "text": "v"}]},
           {"role": "user", "content": "w"}]})",
     R"({"max_tokens": 1, "messages": [
           {"role": "system", "content": [{"type": "text", "text": "s"},
                                          {"type": "text", "text": "t"}]},
           {"role": "user", "content": [{"type": "text", "text": "a"},
                                        {"type": "text", "text": "\n\nu"}]},
           {"role": "assistant", "content": null, "tool_calls": [{"id": "t", "type": "function",
              "function": {"name": "f", "arguments": "{}"}}]},
           {"role": "tool", "tool_call_id": "t", "content": "r"},
           {"role": "user", "content": [{"type": "text", "text": "v"},
                                        {"type": "text", "text": "w"}]}]})"},
    // Of what is no text the model is told that it was there.
    {R"({"max_tokens": 1, "messages": [
           {"role": "user", "content": [{"type": "text", "text": "a"},
              {"type": "image", "source": {"type": "base64", "data": "x"}},
              {"type": "document", "source": {"type": "base64", "data": "x"}},
              {"type": "document", "source": {"type": "text", "data": "b"}},
              {"type": "document", "source": {"type": "content", "content": [
                 {"type": "text", "text": "c"}, {"type": "image"}]}}]},
           {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f",
                                              "input": {}}]},
           {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
              "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]}]})",
     R"({"max_tokens": 1, "messages": [
           {"role": "user", "content": [{"type": "text", "text": "a"},
              {"type": "text", "text": "[an image, which this model cannot see]"},
              {"type": "text", "text": )"
     R"("[a document that is no text, which this model cannot read]"},
              {"type": "text", "text": "b"}, {"type": "text", "text": "c"},
              {"type": "text", "text": "[an image, which this model cannot see]"}]},
           {"role": "assistant", "content": null, "tool_calls": [{"id": "t", "type": "function",
              "function": {"name": "f", "arguments": "{}"}}]},
           {"role": "tool", "tool_call_id": "t",
            "content": "[an image, which this model cannot see]"}]})"},
    // An answer goes on with what the assistant said last.
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"},
                                       {"role": "assistant", "content": "b"}]})",
     R"({"max_tokens": 1, "continue_final_message": true, "messages": [
           {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"},
};

const SameRequest kWishes[] = {
    // Tools.
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object",
                    "properties": {"z": {"type": "string"}, "a": {}}},
                    "cache_control": {"type": "ephemeral"}, "defer_loading": false},
                   {"type": "custom", "name": "g", "input_schema": {"type": "object"}}]})",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"type": "function", "function": {"name": "f", "description": "d",
                    "parameters": {"type": "object",
                    "properties": {"z": {"type": "string"}, "a": {}}}}},
                   {"type": "function", "function": {"name": "g",
                    "parameters": {"type": "object"}}}]})"},
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "any",
         "disable_parallel_tool_use": true}})",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
         "tool_choice": "required", "parallel_tool_calls": false})"},
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"name": "f", "input_schema": {}}],
         "tool_choice": {"type": "tool", "name": "f"}})",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
         "tool_choice": {"type": "function", "function": {"name": "f"}}})"},
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "none"}})",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
         "tool_choice": "none"})"},
    // Thoughts, and the form of the answer.
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "thinking": {"type": "enabled", "budget_tokens": 1024}})",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "thinking": true})"},
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "thinking": {"type": "adaptive", "display": "omitted"},
         "output_config": {"effort": "high"}})",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "thinking": true,
         "include_reasoning": false, "reasoning_effort": "high"})"},
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "thinking": {"type": "disabled"}})",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "thinking": false})"},
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "output_config": {"format": {"type": "json_schema", "schema": {"type": "object",
         "properties": {"z": {"type": "null"}, "a": {"type": "null"}}}}}})",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "response_format": {"type": "json_schema", "json_schema": {"name": "answer",
         "schema": {"type": "object",
         "properties": {"z": {"type": "null"}, "a": {"type": "null"}}}}}})"},
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "output_config": {"effort": "high"},
         "output_format": {"type": "json_schema", "schema": {"type": "object"}}})",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "reasoning_effort": "high",
         "response_format": {"type": "json_schema", "json_schema": {"name": "answer",
         "schema": {"type": "object"}}}})"},
    {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "output_format": {"type": "json_schema", "schema": {"type": "object"}}})",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "response_format": {"type": "json_schema", "json_schema": {"name": "answer",
         "schema": {"type": "object"}}}})"},
};

void check_same(const SameRequest& c) {
  CAPTURE(c.message);
  ApiRequest message, chat;
  const auto error = parse_message(c.message, message_facts(), message);
  if (error) MESSAGE(error->message);
  REQUIRE_FALSE(error);
  REQUIRE_FALSE(parse_chat(c.chat, message_facts(), chat));
  const GenerationRequest &is = message.prompts.front(), &should = chat.prompts.front();
  CHECK(is.prompt == should.prompt);
  const auto in_order = [](const std::string& tools) {
    return nlohmann::ordered_json::parse(tools.empty() ? "null" : tools);
  };
  CHECK(in_order(is.tools).dump() == in_order(should.tools).dump());
  CHECK(is.stop == should.stop);
  CHECK(is.seed == should.seed);
  CHECK(is.top_k == should.top_k);
  CHECK(is.top_p == should.top_p);
  CHECK(is.temperature == should.temperature);
  CHECK(is.max_tokens == should.max_tokens);
  CHECK(is.grammar == should.grammar);
  CHECK(is.chat_template_kwargs == should.chat_template_kwargs);
  CHECK(is.continue_final_message == should.continue_final_message);
  CHECK(message.forced.size() == chat.forced.size());
  CHECK(message.calls.read == chat.calls.read);
  CHECK(message.calls.several == chat.calls.several);
  CHECK(message.thinking.on == chat.thinking.on);
  CHECK(message.include_reasoning == chat.include_reasoning);
  CHECK(message.message);
  CHECK_FALSE(chat.message);
  const auto read = read_forms(
      {std::make_shared<const RequestName>(RequestName{.form = write_form(message, 0)})}, 4096);
  REQUIRE(read.ok());
  CHECK(read->message);
}

TEST_CASE("a Message asks for what this chat asks for") {
  for (const SameRequest& c : kConversations) check_same(c);
  for (const SameRequest& c : kWishes) check_same(c);
}

TEST_CASE("a model without thoughts is not asked for any") {
  ModelFacts facts = message_facts();
  facts.reasoning = false;
  ApiRequest request;
  for (const char* const type : {"enabled", "adaptive", "disabled"}) {
    const json body = {{"max_tokens", 1},
                       {"messages", {{{"role", "user"}, {"content", "a"}}}},
                       {"thinking", {{"type", type}}}};
    CHECK_FALSE(parse_message(body.dump(), facts, request));
  }
}

TEST_CASE("tokens are counted of what has no bound") {
  ApiRequest request;
  const std::string body = R"({"messages": [{"role": "user", "content": "a"}]})";
  CHECK_FALSE(parse_count_tokens(body, message_facts(), request));
  const auto error = parse_message(body, message_facts(), request);
  REQUIRE(error);
  CHECK(error->param == "max_tokens");
}

TEST_CASE("what is wrong with a Message is named as it names it") {
  struct Case {
    const char *fields, *begins;
  };
  const Case cases[] = {
      {R"("messages": [])", "messages must"},
      {R"("messages": 3)", "messages must"},
      {R"("messages": [3])", "messages[0] must"},
      {R"("messages": [{"role": "robot", "content": "x"}])", "messages[0].role"},
      {R"("messages": [{"role": "user"}])", "messages[0].content"},
      {R"("messages": [{"role": "user", "content": [{"type": "video"}]}])",
       "messages[0].content[0].type 'video'"},
      {R"("messages": [{"role": "user", "content": [{"type": "document", "source":
          {"type": "text"}}]}])",
       "messages[0].content[0].source.data must"},
      {R"("messages": [{"role": "user", "content": [{"type": "document", "source":
          {"type": "content", "content": [{"type": "x"}]}}]}])",
       "messages[0].content[0].source.content[0].type 'x'"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "image"}]}])",
       "messages[0].content[0].type 'image'"},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a"}]}])",
       "messages[0].content[0].type 'tool_use'"},
      {R"("messages": [{"role": "user", "content": ["x"]}])", "messages[0].content[0] must"},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_result"}]}])",
       "messages[0].content[0].tool_use_id"},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
          "content": [{"type": "video"}]}]}])",
       "messages[0].content[0].content[0].type 'video'"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t",
          "name": "f", "input": 3}]}])",
       "messages[0].content[0].input"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "server_tool_use"}]}])",
       "messages[0].content[0].type 'server_tool_use'"},
      {R"("system": 3)", "system must"},
      {R"("system": [{"type": "image"}])", "system[0].type 'image'"},
      {R"("max_tokens": 0)", "max_tokens must"},
      {R"("stop_sequences": [""])", "stop_sequences must"},
      {R"("top_p": 2)", "top_p must"},
      {R"("tools": {})", "tools must"},
      {R"("tools": [{"type": "web_search_20250305", "name": "w"}])",
       "tools[0].type \"web_search_20250305\""},
      {R"("tools": [{"name": "f"}])", "tools[0].input_schema must"},
      {R"("tools": [{"name": "f", "input_schema": null}])", "tools[0].input_schema must"},
      {R"("tools": [{"name": "f f", "input_schema": {}}])", "tools[0].name"},
      {R"("tools": [{"name": "f", "input_schema": {"type": "array"}}])", "tools[0].input_schema"},
      {R"("tool_choice": "auto")", "tool_choice must"},
      {R"("tool_choice": {"type": "tool"})", "tool_choice must"},
      {R"("tool_choice": {"type": "any"})", "tool_choice makes"},
      {R"("thinking": {"type": "on"})", "thinking.type"},
      {R"("thinking": {"type": "enabled", "budget_tokens": "x"})", "thinking.budget_tokens"},
      {R"("output_config": {"effort": "huge"})", "output_config.effort"},
      {R"("output_config": {"format": {"type": "json_schema"}})", "output_config must"},
      {R"("output_config": {"format": {"type": "json_schema", "schema": {}}},
          "output_format": {"type": "json_schema", "schema": {}})",
       "output_format is what output_config.format"},
      {R"("mcp_servers": [{"url": "x"}])", "mcp_servers is not"},
      {R"("container": "c")", "container is not"},
      {R"("stop": ["x"])", "stop is not"},
      {R"("max_token": 3)", "There is no field 'max_token'"},
  };
  const json good = {{"max_tokens", 1}, {"messages", {{{"role", "user"}, {"content", "a"}}}}};
  for (const Case& c : cases) {
    CAPTURE(c.fields);
    json body = good;
    body.update(json::parse("{" + std::string(c.fields) + "}"));
    ApiRequest request;
    const auto error = parse_message(body.dump(), message_facts(), request);
    REQUIRE(error);
    CHECK(error->status == 400);
    INFO(error->message);
    CHECK(error->message.starts_with(c.begins));
  }
}

TEST_CASE("a Message's tools have names of up to 128 characters") {
  for (const std::size_t size : {128, 129}) {
    const std::string name(size, 'a');
    const json body = {{"max_tokens", 1},
                       {"messages", {{{"role", "user"}, {"content", "a"}}}},
                       {"tools", {{{"name", name}, {"input_schema", json::object()}}}},
                       {"tool_choice", {{"type", "tool"}, {"name", name}}}};
    ApiRequest request;
    CHECK(parse_message(body.dump(), message_facts(), request).has_value() == (size > 128));
  }
}

TEST_CASE("what is found wrong later is said in Anthropic's words") {
  struct Said {
    const char *chat, *message;
  };
  const Said cases[] = {
      {"messages: has 5000 tokens; the context holds 4096, answer included: shorten it.",
       "prompt is too long: 5000 tokens > 4095 maximum"},
      {"messages: has at least 9 tokens; the context holds 8, answer included: shorten it, or "
       "raise --max-model-len.",
       "prompt is too long: at least 9 tokens > 7 maximum"},
      {"max_tokens: is 32000, and the prompt has 900 tokens; the context holds 4096, answer "
       "included: at most 3196 are left.",
       "input length and `max_tokens` exceed context limit: 900 + 32000 > 4096, decrease input "
       "length or `max_tokens` and try again"},
      {"messages: reasoning_content of the last one cannot be continued: thinking is turned off.",
       "messages: thinking of the last one cannot be continued: thinking is turned off."},
      {"max_tokens: must be at least 1.", "max_tokens: must be at least 1."},
  };
  for (const Said& c : cases) {
    const ApiError error = as_message_error(bad_field("messages", c.chat));
    CHECK(error.status == 400);
    CHECK(error.message == c.message);
  }
}

}  // namespace
}  // namespace troupe
