#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/gateway/answer.h"
#include "actors/gateway/request_form.h"
#include "actors/gateway/schema_shape.h"
#include "tests/actors/gateway/asked_tools.h"
#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

/// What a client makes of a stream's chunks.
struct Streamed {
  std::string content, finish;
  json calls = json::array();
  int starts = 0;

  void add(const std::string& body) {
    std::size_t at = 0;
    while ((at = body.find("data: {", at)) != std::string::npos) {
      const std::size_t end = body.find("\n\n", at);
      const json chunk = json::parse(body.substr(at + 6, end - at - 6));
      at = end;
      for (const json& choice : chunk["choices"]) add_choice(choice);
    }
  }

  void add_choice(const json& choice) {
    const json& delta = choice["delta"];
    if (delta.contains("content") && delta["content"].is_string()) content += delta["content"];
    if (!choice["finish_reason"].is_null()) {
      finish = choice["finish_reason"];
      CHECK_FALSE(delta.contains("tool_calls"));  // openai ends a call by what comes behind it
    }
    for (const json& call : delta.value("tool_calls", json::array())) {
      const std::size_t index = call["index"];
      if (call.contains("id")) {
        CHECK(index == calls.size());
        CHECK(call["type"] == "function");
        calls.push_back({{"id", call["id"]}, {"type", "function"}, {"function", call["function"]}});
        ++starts;
      } else {
        REQUIRE(index < calls.size());
        CHECK_FALSE(call["function"].contains("name"));
        std::string all = calls[index]["function"]["arguments"];
        calls[index]["function"]["arguments"] =
            all + call["function"]["arguments"].get<std::string>();
      }
    }
  }
};

}  // namespace

TEST_CASE("an answer's calls are in its message") {
  Stand stand({}, model_that_calls());
  say(stand, called_text());
  const json choice = stand.client().post("/v1/chat/completions", asked()).json()["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  const json& message = choice["message"];
  CHECK(message["content"] == "I look.");
  REQUIRE(message["tool_calls"].size() == 2);
  CHECK(message["tool_calls"][0]["type"] == "function");
  CHECK(message["tool_calls"][0]["function"] ==
        json({{"name", "get_weather"}, {"arguments", R"({"city": "Bern"})"}}));
  CHECK(message["tool_calls"][1]["function"] == json({{"name", "now"}, {"arguments", "{}"}}));
  CHECK(message["tool_calls"][0]["id"] != message["tool_calls"][1]["id"]);
  CHECK(message["tool_calls"][0]["id"].get<std::string>().starts_with("call_"));

  say(stand, called_text().substr(8));
  const json only = stand.client().post("/v1/chat/completions", asked()).json()["choices"][0];
  CHECK(only["message"]["content"].is_null());
  const json first_only = stand.client()
                              .post("/v1/chat/completions", asked({{"parallel_tool_calls", false}}))
                              .json()["choices"][0];
  CHECK(first_only["message"]["tool_calls"].size() == 1);

  // Nobody reads calls that were not offered, or not wanted.
  for (const json& body : {asked({{"tools", json::array()}}), asked({{"tool_choice", "none"}})}) {
    const json plain = stand.client().post("/v1/chat/completions", body).json()["choices"][0];
    CHECK(plain["finish_reason"] == "stop");
    CHECK(plain["message"] == json({{"role", "assistant"}, {"content", called_text().substr(8)}}));
  }
  // Cut off: the arguments that there are, and the reason why.
  const json cut =
      stand.client().post("/v1/chat/completions", asked({{"max_tokens", 64}})).json()["choices"][0];
  CHECK(cut["finish_reason"] == "length");
  CHECK(cut["message"]["tool_calls"][0]["function"]["arguments"] == R"({"city": "Bern")");
}

TEST_CASE("a stream's calls come in pieces, and go on where a client stands") {
  Stand stand({}, model_that_calls());
  say(stand, called_text());
  HttpResponse answer = stand.client().post("/v1/chat/completions", asked({{"stream", true}}));
  Streamed whole;
  whole.add(answer.body);
  CHECK(whole.content == "I look.");
  CHECK(whole.finish == "tool_calls");
  REQUIRE(whole.calls.size() == 2);
  CHECK(whole.calls[0]["function"] ==
        json({{"name", "get_weather"}, {"arguments", R"({"city": "Bern"})"}}));
  CHECK(whole.calls[1]["function"] == json({{"name", "now"}, {"arguments", "{}"}}));

  const std::string path = "/v1/requests/" + answer.headers["x-request-id"];
  const json found = stand.client().get(path).json()["choices"][0]["message"];
  CHECK(found["tool_calls"] == whole.calls);
  // Every place to go on from: together with what came before it is the same answer.
  for (std::size_t from = 0; from <= called_text().size(); ++from) {
    CAPTURE(from);
    Streamed again;
    std::size_t counted = 0, at = 0;
    const std::string all = stand.client().get(path + "/events?from=0").body;
    while (counted < from && (at = all.find("id: ", at)) != std::string::npos) {
      counted = std::stoul(all.substr(at + 4));
      if (counted > from) break;
      at = all.find("\n\n", at);
    }
    // Only where an event ends can a client stand.
    if (counted != from) continue;
    again.add(all.substr(0, from == 0 ? 0 : at + 2));
    again.add(stand.client().get(path + "/events?from=" + std::to_string(from)).body);
    CHECK(again.calls == whole.calls);
    CHECK(again.content == whole.content);
    CHECK(again.finish == "tool_calls");
    CHECK(again.starts == 2);
  }
}

TEST_CASE("a resumed answer knows the tags that were special tokens") {
  class TagModel : public ByteModel {
   public:
    std::string_view token_bytes(TokenId id) const override {
      return id == 257 ? "<tool_call>" : ByteModel::token_bytes(id);
    }
    bool is_special(TokenId id) const override { return id >= 256; }
  };
  TagModel model;
  model.tools = ToolStyle::kHermes;
  ApiRequest request;
  REQUIRE_FALSE(parse_chat(asked({{"stream", true}}).dump(),
                           {.served_model_name = "bytes", .tools = ToolStyle::kHermes}, request));
  Answer answer(request, model, "chatcmpl-1", 7);
  const std::string had = R"({"name": "now", "arg)", rest = R"(uments": {}})";
  answer.resume({static_cast<std::uint32_t>(had.size() + 1)});
  REQUIRE(answer.needs_past());
  GenerationEvent past;
  past.tokens.push_back({.token = 257, .logprob = 0, .top = {}});
  for (const char c : had) past.tokens.push_back({.token = c, .logprob = 0, .top = {}});
  answer.add_past(0, std::move(past));
  answer.past_is_there();
  GenerationEvent event;
  event.text = rest;
  event.tokens.push_back({.token = 1, .logprob = 0, .top = {}});
  event.finish = FinishReason::kStop;
  event.request_done = true;
  std::string out;
  answer.add(0, std::move(event), out);
  Streamed streamed;
  streamed.add(out);
  REQUIRE(streamed.calls.size() == 1);
  CHECK(streamed.calls[0]["function"] == json({{"name", "now"}, {"arguments", "{}"}}));
  CHECK(streamed.finish == "tool_calls");
}

TEST_CASE("ids of calls are the model's own, or made of the request's") {
  Stand stand({}, model_that_calls(ToolStyle::kKimi));
  say(stand,
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:3<|tool_call_argument_begin|>{}"
      "<|tool_call_end|><|tool_calls_section_end|>");
  HttpResponse answer = stand.client().post("/v1/chat/completions", asked({{"n", 2}}));
  CHECK(answer.json()["choices"][1]["message"]["tool_calls"][0]["id"] == "functions.now:3");

  Stand hermes({}, model_that_calls());
  say(hermes, called_text());
  answer = hermes.client().post("/v1/chat/completions", asked({{"n", 2}}));
  const json choices = answer.json()["choices"];
  CHECK(choices[0]["message"]["tool_calls"][0]["id"] !=
        choices[1]["message"]["tool_calls"][0]["id"]);
  const json again =
      hermes.client().get("/v1/requests/" + answer.headers["x-request-id"]).json()["choices"];
  CHECK(again == choices);
}

TEST_CASE("a model without a form for calls can be made to call") {
  Stand stand({}, model_that_calls(ToolStyle::kNone));
  say(stand, R"([{"name": "now", "parameters": {}}])");
  const HttpResponse refused = stand.client().post("/v1/chat/completions", asked());
  CHECK(refused.status == 400);
  CHECK(refused.json()["error"]["param"] == "tools");
  HttpResponse answer =
      stand.client().post("/v1/chat/completions", asked({{"tool_choice", "required"}}));
  REQUIRE(answer.status == 200);
  CHECK(answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "now");
  CHECK(answer.json()["choices"][0]["message"]["content"].is_null());
  const std::string path = "/v1/requests/" + answer.headers["x-request-id"];
  CHECK(stand.client().get(path).json()["choices"] == answer.json()["choices"]);
}

TEST_CASE("tools and their results reach the model as they were sent") {
  Stand stand({}, model_that_calls());
  const std::string tools =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "a": 1}}}])";
  const std::string body = R"({"tools": )" + tools + R"(, "messages": [
      {"role": "user", "content": "x"},
      {"role": "assistant", "content": null, "tool_calls": [
          {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1}"}},
          {"id": "c2", "type": "function", "function": {"name": "f", "arguments": {"b": 2}}}]},
      {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "sunny"},
      {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "wet"}]}]})";
  REQUIRE(stand.client().post("/v1/chat/completions", json::parse(body)).status == 200);
  ApiRequest request;
  REQUIRE_FALSE(
      parse_chat(body, {.served_model_name = "bytes", .tools = ToolStyle::kHermes}, request));
  CHECK(request.prompts[0].tools == tools);
  const auto& messages = std::get<std::vector<ChatMessage>>(request.prompts[0].prompt);
  REQUIRE(messages.size() == 4);
  CHECK(messages[1] ==
        ChatMessage{"assistant", "", {{"c1", "f", "{\"b\": 1}"}, {"c2", "f", "{\"b\":2}"}}});
  CHECK(messages[2] == ChatMessage{"tool", "sunny", {}, "c1", "f"});
  ChatMessage wet{"tool", "", {}, "c2"};
  wet.parts = {"wet"};
  CHECK(messages[3] == wet);
}

TEST_CASE("bad tools are named") {
  const auto function = [](const json& fields) {
    return json{{"tools", {{{"type", "function"}, {"function", fields}}}}};
  };
  json many = json::array(), large = kNow;
  for (int i = 0; i < 10'000; ++i)
    many.push_back({{"type", "function"}, {"function", {{"name", "f" + std::to_string(i)}}}});
  large["function"]["description"] = std::string(2u << 20, 'x');
  const std::pair<const char*, json> cases[] = {
      {"tools", {{"tools", "x"}}},
      {"tools", {{"tools", {1}}}},
      {"tools", {{"tools", {{{"type", "retrieval"}}}}}},
      {"tools", {{"tools", {{{"type", "function"}}}}}},
      {"tools", function(json::object())},
      {"tools", function({{"name", ""}})},
      {"tools", function({{"name", std::string(129, 'a')}})},
      {"tools", function({{"name", "a b"}})},
      {"tools", function({{"name", "<｜tool▁sep｜>"}})},
      {"tools", function({{"name", "a\"}"}})},
      {"tools", function({{"name", 7}})},
      {"tools", function({{"name", "f"}, {"description", 7}})},
      {"tools", function({{"name", "f"}, {"parameters", "x"}})},
      {"tools", function({{"name", "f"}, {"parameters", {{"type", "string"}}}})},
      {"tools", function({{"name", "f"}, {"parameters", {{"properties", 3}}}})},
      {"tools", {{"tools", {kNow, kNow}}}},
      {"tools", {{"tools", many}}},
      {"tools", {{"tools", {large}}}},
      {"tool_choice", {{"tool_choice", "any"}}},
      {"tool_choice", {{"tool_choice", {{"type", "function"}, {"name", "now"}}}}},
      {"tool_choice",
       {{"tool_choice", {{"type", "function"}, {"function", {{"name", "unknown"}}}}}}},
      {"tool_choice", {{"tools", json::array()}, {"tool_choice", "required"}}},
      {"parallel_tool_calls", {{"parallel_tool_calls", "no"}}},
      {"tools", {{"tools", {{{"type", "custom"}, {"custom", {{"name", "x"}}}}}}}},
      {"tools", function({{"name", "f"}, {"strict", "yes"}})},
      {"functions", {{"functions", {kNow["function"]}}}},  // beside tools
      {"function_call", {{"function_call", "auto"}}},
      {"functions", {{"tools", nullptr}, {"functions", "x"}}},
      {"functions", {{"tools", nullptr}, {"functions", {{{"name", "a b"}}}}}},
      {"function_call",
       {{"tools", nullptr}, {"functions", {kNow["function"]}}, {"function_call", "now"}}},
      {"function_call",
       {{"tools", nullptr}, {"functions", {kNow["function"]}}, {"function_call", {{"name", "g"}}}}},
      {"function_call", {{"tools", nullptr}, {"function_call", {{"name", "g"}}}}},
  };
  for (const auto& [param, more] : cases) {
    CAPTURE(more.dump().substr(0, 200));
    ApiRequest request;
    const auto error = parse_chat(
        asked(more).dump(), {.served_model_name = "bytes", .tools = ToolStyle::kHermes}, request);
    REQUIRE(error);
    CHECK(error->status == 400);
    CHECK(error->param == param);
  }
}

TEST_CASE("what is no schema is named by its path") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"properties": 3})", ".properties must be an object of schemas."},
      {R"({"properties": null})", ".properties must be an object of schemas."},
      {R"({"properties": {"a": "string"}})", ".properties.a must be an object, or true or false."},
      {R"({"properties": {"a": {"items": 1}}})",
       ".properties.a.items must be an object, or true or false."},
      {R"({"properties": {"a": {"items": [true, 1]}}})",
       ".properties.a.items[1] must be an object, or true or false."},
      {R"({"$defs": {"a": {"anyOf": {}}}})", ".$defs.a.anyOf must be a list of schemas."},
      {R"({"additionalProperties": "no"})",
       ".additionalProperties must be an object, or true or false."},
      {R"({"properties": {"properties": {"type": "string", "required": true, "enum": [1]}},
           "additionalProperties": false, "oneOf": [{}, true], "not": {}, "x": {"items": 1}})",
       ""},
  };
  for (const auto& [schema, wrong] : cases) CHECK(wrong_in_schema(json::parse(schema)) == wrong);
  const auto error = [](const json& parameters) {
    const json tool = {{"type", "function"},
                       {"function", {{"name", "f"}, {"parameters", parameters}}}};
    ApiRequest request;
    return parse_chat(asked({{"tools", {kNow, tool}}}).dump(), {.served_model_name = "bytes"},
                      request);
  };
  REQUIRE(error({{"properties", 3}}));
  CHECK(error({{"properties", 3}})->message ==
        "tools[1].function.parameters.properties must be an object of schemas.");
}

TEST_CASE("bad calls in the history are named") {
  const json good = {{"id", "c"}, {"type", "function"}, {"function", {{"name", "f"}}}};
  const auto with = [&](const char* key, const json& value) {
    json call = good;
    call["function"][key] = value;
    return call;
  };
  const json bad[] = {7,
                      {{"id", "c"}},
                      {{"type", "other"}, {"function", {{"name", "f"}}}},
                      with("name", "a b"),
                      with("name", 1),
                      with("arguments", 1)};
  const auto read = [](const json& message) {
    ApiRequest request;
    const json body = {{"messages", {message}}};
    const auto error = parse_chat(body.dump(), {.served_model_name = "bytes"}, request);
    return error ? error->message : "";
  };
  const auto assistant = [](const json& calls) {
    return json{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", calls}};
  };
  CHECK(read(assistant(json::array({good}))) == "");
  for (const json& call : bad)
    CHECK(read(assistant(json::array({good, call}))).starts_with("messages[0].tool_calls[1]"));
  CHECK(read(assistant("x")).find("tool_calls must be a list") != std::string::npos);
  CHECK(read({{"role", "user"}, {"content", "x"}, {"tool_calls", json::array({good})}}) != "");
  CHECK(read({{"role", "tool"}, {"content", "x"}, {"tool_call_id", 7}}) != "");
}

TEST_CASE("how calls are read survives in the request's form") {
  ApiRequest request;
  REQUIRE_FALSE(parse_chat(asked({{"tool_choice", "required"},
                                  {"parallel_tool_calls", false},
                                  {"include_reasoning", false}})
                               .dump(),
                           {.served_model_name = "bytes"}, request));
  RequestName name;
  name.form = write_form(request, 0);
  const auto read = read_forms({std::make_shared<const RequestName>(name)}, 4096);
  REQUIRE(read.ok());
  CHECK(read->calls.read);
  CHECK(read->calls.list);
  CHECK_FALSE(read->calls.old);
  CHECK_FALSE(read->calls.several);
  CHECK(read->calls.sketch == ToolSketch{{"get_weather", {"city"}}, {"now", {}}});
  CHECK_FALSE(read->include_reasoning);
  for (const char* bad :
       {R"({"calls": 1})", R"({"calls": {"tools": []}})", R"({"calls": {"tools": {"f": "x"}}})",
        R"({"calls": {"tools": {"f": [1]}}})", R"({"calls": {"tools": {}, "list": 1}})"}) {
    name.form = bad;
    CHECK_FALSE(read_forms({std::make_shared<const RequestName>(name)}, 4096).ok());
  }
}

TEST_CASE("thinking is turned off and hidden") {
  ByteModel model;
  model.thinks = model.opens = true;
  Stand stand({}, model);
  say(stand, "hm</think>yes");
  const auto message = [&](const json& more) {
    json body = {{"messages", {{{"role", "user"}, {"content", "x"}}}}};
    body.update(more);
    return stand.client().post("/v1/chat/completions", body).json()["choices"][0]["message"];
  };
  CHECK(message(json::object())["reasoning_content"] == "hm");
  const json hidden = message({{"include_reasoning", false}});
  CHECK_FALSE(hidden.contains("reasoning_content"));
  CHECK(hidden["content"] == "yes");
  CHECK(message({{"enable_thinking", false}})["content"] == "hm</think>yes");
  CHECK(message({{"thinking", {{"type", "disabled"}}}})["content"] == "hm</think>yes");
  CHECK(message({{"reasoning_effort", "none"}})["content"] == "hm</think>yes");
  CHECK(stand.service.seen().back().chat_template_kwargs ==
        R"({"enable_thinking":false,"thinking":false})");
  CHECK(message({{"enable_thinking", true}})["reasoning_content"] == "hm");
}

}  // namespace troupe::testing
