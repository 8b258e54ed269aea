// POST /v1/messages: the object, the events, and errors in Anthropic's form.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/gateway/asked_tools.h"
#include "tests/actors/gateway/stand.h"
#include "tests/actors/gateway/thinking_caller.h"
#include "tests/actors/gateway/typed_events.h"

namespace troupe::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

FakeService::Script all_of_it(std::chrono::microseconds tick = {}) {
  FakeService::Script script = script_of_all(tick);
  script.stops = true;
  return script;
}

json message_body(json more = json::object()) {
  json body = {{"max_tokens", 1000},
               {"messages", {{{"role", "user"}, {"content", "x"}}}},
               {"tools", {{{"name", "f"}, {"input_schema", json::object()}}}}};
  body.update(more);
  return body;
}

/// The blocks as a client builds them.
json built_blocks(const std::vector<TypedEvent>& events) {
  std::map<int, json> blocks;
  std::map<int, std::string> inputs;
  for (const TypedEvent& event : events) {
    CHECK(event.data["type"] == event.type);
    const int index = event.data.value("index", -1);
    if (event.type == "content_block_start") blocks[index] = event.data["content_block"];
    if (event.type == "content_block_delta") {
      const json& delta = event.data["delta"];
      for (const auto& [delta_name, name] :
           {std::pair("text", "text"), std::pair("thinking", "thinking"),
            std::pair("signature", "signature")})
        if (delta.contains(delta_name))
          blocks[index][name] =
              blocks[index][name].get<std::string>() + delta[delta_name].get<std::string>();
      if (delta.contains("partial_json")) inputs[index] += delta["partial_json"].get<std::string>();
    }
  }
  json list = json::array();
  for (auto& [index, block] : blocks) {
    if (inputs.contains(index)) block["input"] = json::parse(inputs[index]);
    list.push_back(block);
  }
  return list;
}

json without_call_ids(json blocks) {
  for (json& block : blocks)
    if (block["type"] == "tool_use") block.erase("id");
  return blocks;
}

TEST_CASE("a message is made of blocks in the model's order") {
  Stand stand({}, thinking_caller());
  stand.service.set(all_of_it());
  HttpResponse answer = stand.client().post("/v1/messages", message_body());
  REQUIRE(answer.status == 200);
  const json object = answer.json(), content = object["content"];
  CHECK(object["id"] == answer.headers["request-id"]);
  CHECK(object["id"] == answer.headers["x-request-id"]);
  CHECK(object["id"].get<std::string>().starts_with("msg_"));
  CHECK(object["type"] == "message");
  CHECK(object["role"] == "assistant");
  CHECK(object["model"] == "bytes");
  CHECK(object["stop_reason"] == "tool_use");
  CHECK(object["stop_sequence"].is_null());
  REQUIRE(content.size() == 4);
  CHECK(content[0]["type"] == "thinking");
  CHECK(content[0]["thinking"] == "Hm, so.");
  CHECK(content[0]["signature"].get<std::string>().size() == 32);
  CHECK(content[1] == json({{"type", "text"}, {"text", "Let me see."}}));
  for (int i = 2; i < 4; ++i) {
    CHECK(content[i]["type"] == "tool_use");
    CHECK(content[i]["name"] == "f");
    CHECK(content[i]["input"] == json({{"a", i - 1}}));
  }
  CHECK(content[2]["id"] != content[3]["id"]);
  CHECK(object["usage"]["input_tokens"] == 3);
  CHECK(object["usage"]["cache_read_input_tokens"] == 0);
  CHECK(object["usage"]["output_tokens"] == kThoughtTextAndCalls.size());

  const auto with = [&](json more) {
    return stand.client().post("/v1/messages", message_body(std::move(more))).json();
  };
  const json one = {{"type", "auto"}, {"disable_parallel_tool_use", true}};
  CHECK(with({{"tool_choice", one}})["content"].size() == 3);
  const json omitted = {{"type", "adaptive"}, {"display", "omitted"}};
  CHECK(with({{"thinking", omitted}})["content"][0]["type"] == "text");
  // A call that is cut off is there, but its input is none.
  const json cut = with({{"max_tokens", 73}});
  CHECK(cut["stop_reason"] == "max_tokens");
  CHECK(cut["content"].back()["input"] == json::object());
}

TEST_CASE("what ends a call late belongs to the call") {
  Stand stand({}, model_that_calls(ToolStyle::kGlm));
  json tool = {{"name", "f"}, {"input_schema", {{"type", "object"}}}};
  FakeService::Script script;
  script.text =
      "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>\"x</arg_value>\n</tool_call>\nDone.";
  script.stops = true;
  stand.service.set(script);
  const json body = message_body({{"tools", json::array({tool})}});
  const json whole = stand.client().post("/v1/messages", body).json()["content"];
  CAPTURE(whole);
  REQUIRE(whole.size() == 2);
  CHECK(whole[0]["input"] == json({{"a", "\"x"}}));
  CHECK(whole[1]["text"] == "\nDone.");
  const json streamed = message_body({{"tools", json::array({tool})}, {"stream", true}});
  const auto events = typed_events(stand.client().post("/v1/messages", streamed).body);
  CHECK(without_call_ids(built_blocks(events)) == without_call_ids(whole));
}

TEST_CASE("a call's input is JSON to its end") {
  Stand stand({}, model_that_calls());
  say(stand, R"(<tool_call>{"name": "f", "arguments": "{}\u0000 x"}</tool_call>)");
  CHECK(stand.client().post("/v1/messages", message_body()).json()["type"] == "message");
}

TEST_CASE("a message ends with what ended it") {
  Stand stand;
  FakeService::Script script;
  script.stops = true;
  script.text =
      "A b\xc3\xa9"
      "e";
  stand.service.set(script);
  const auto end = [&](json more) {
    json body = {{"max_tokens", 100}, {"messages", {{{"role", "user"}, {"content", "x"}}}}};
    body.update(more);
    json object = stand.client().post("/v1/messages", body).json();
    body["stream"] = true;
    const auto events = typed_events(stand.client().post("/v1/messages", body).body);
    const json last = events[events.size() - 2].data;
    CHECK(last["type"] == "message_delta");
    CHECK(last["delta"]["stop_reason"] == object["stop_reason"]);
    CHECK(last["delta"]["stop_sequence"] == object["stop_sequence"]);
    CHECK(last["usage"] == object["usage"]);
    return std::pair(object["stop_reason"], object["stop_sequence"]);
  };
  CHECK(end(json::object()) == std::pair(json("end_turn"), json()));
  CHECK(end({{"max_tokens", 2}}) == std::pair(json("max_tokens"), json()));
  CHECK(end({{"stop_sequences", {"x"}}}) == std::pair(json("end_turn"), json()));
  CHECK(end({{"stop_sequences",
              {"e",
               "\xc3\xa9"
               "e",
               "x"}}}) == std::pair(json("stop_sequence"), json("\xc3\xa9"
                                                                "e")));
}

TEST_CASE("a stream tells a message in Anthropic's events") {
  Stand stand({}, thinking_caller());
  stand.service.set(all_of_it(200us));
  const json whole = stand.client().post("/v1/messages", message_body()).json();
  HttpResponse answer = stand.client().post("/v1/messages", message_body({{"stream", true}}));
  const auto events = typed_events(answer.body);
  std::vector<std::string> types = {"message_start", "ping"};
  for (int i = 0; i < 4; ++i)
    types.insert(types.end(), {"content_block_start", "content_block_delta", "content_block_stop"});
  types.insert(types.end(), {"message_delta", "message_stop"});
  CHECK(types_of(events) == types);
  const json start = events[0].data["message"];
  CHECK(start["content"].empty());
  CHECK(start["stop_reason"].is_null());
  CHECK(start["usage"]["input_tokens"] == whole["usage"]["input_tokens"]);
  CHECK(without_call_ids(built_blocks(events)) == without_call_ids(whole["content"]));
}

TEST_CASE("a message's stream goes on where its client stopped") {
  Stand stand({}, thinking_caller());
  stand.service.set(all_of_it(100us));
  json body = message_body({{"stream", true}, {"stop_sequences", {"</tool_call>"}}});
  HttpResponse answer = stand.client().post("/v1/messages", body);
  const std::string id = answer.headers["x-request-id"];
  const auto all = typed_events(answer.body);
  for (std::size_t from = 0; from <= kThoughtTextAndCalls.size(); ++from) {
    CAPTURE(from);
    const std::string path = "/v1/requests/" + id + "/events?from=" + std::to_string(from);
    const auto rest = typed_events(stand.client().get(path).body);
    REQUIRE(rest.size() >= 2);
    CHECK(rest.back().type == "message_stop");
    CHECK(rest.back().id == std::to_string(kThoughtTextAndCalls.size()));
    CHECK(rest[rest.size() - 2].data == all[all.size() - 2].data);
    CHECK((rest[0].type == "message_start") == (from == 0));
    if (from == 0) CHECK(built_blocks(rest) == built_blocks(all));
  }
  json found = stand.client().get("/v1/requests/" + id).json();
  CHECK(found["status"] == "finished");
  CHECK(found["content"] == built_blocks(all));
  CHECK(found["stop_reason"] == "stop_sequence");
}

TEST_CASE("errors of the Messages API have Anthropic's form") {
  GatewayOptions options;
  options.doors.api_keys = {"one"};
  Stand stand(std::move(options), thinking_caller());
  const auto check = [](HttpResponse answer, int status, const std::string& type) {
    CHECK(answer.status == status);
    const json object = answer.json();
    CHECK(object["type"] == "error");
    CHECK(object["error"]["type"] == type);
    CHECK_FALSE(object["error"]["message"].get<std::string>().empty());
    CHECK(object.contains("request_id"));
    return object;
  };
  const std::string key =
      "X-Api-Key: one\r\nX-Request-Id: mine\r\nanthropic-version: 2023-06-01\r\n";
  const auto post = [&](const std::string& path, const json& body, const std::string& fields) {
    return stand.client().post(path, body, fields);
  };
  check(post("/v1/messages", message_body(), ""), 401, "authentication_error");
  check(post("/v1/messages", message_body(), "X-Api-Key: two\r\n"), 401, "authentication_error");
  check(post("/v1/messages/x", message_body(), key), 404, "not_found_error");
  check(stand.client().ask("GET", "/v1/messages", key), 405, "invalid_request_error");
  const json bad = check(post("/v1/messages", message_body({{"max_tokens", 0}}), key), 400,
                         "invalid_request_error");
  CHECK(bad["request_id"] == "mine");
  check(post("/v1/messages", message_body({{"model", "x"}}), key), 404, "not_found_error");
  check(post("/v1/messages/count_tokens", {{"messages", 1}}, key), 400, "invalid_request_error");
  FakeService::Script script = all_of_it();
  script.refuse = resource_exhausted("full");
  stand.service.set(script);
  check(post("/v1/messages", message_body(), key), 429, "rate_limit_error");
  script.refuse = unavailable("forming");
  stand.service.set(script);
  HttpResponse over = post("/v1/messages", message_body(), key);
  CHECK(over.headers["retry-after"] == "1");
  CHECK(over.headers["request-id"] == "mine");
  check(over, 529, "overloaded_error");
  script.refuse.reset();
  script.fail = unavailable("node-1 was lost.");
  script.fail_at = 12;
  script.wait_to_fail = true;
  stand.service.set(script);
  HttpClient streamed = stand.client();
  streamed.send(post_text("/v1/messages", message_body({{"stream", true}}).dump(), key));
  REQUIRE(streamed.arrived());
  stand.service.go_on();
  const auto events = typed_events(streamed.response().body);
  CHECK(events.back().type == "error");
  CHECK(events.back().data["error"] ==
        json({{"type", "overloaded_error"}, {"message", "node-1 was lost."}}));
}

TEST_CASE("a key gives the same message again, and tokens are counted") {
  Stand stand({}, thinking_caller());
  stand.service.set(all_of_it());
  const std::string key = "Idempotency-Key: k\r\n";
  const json once = stand.client().post("/v1/messages", message_body(), key).json();
  json again = stand.client().post("/v1/messages", message_body(), key).json();
  CHECK(again["id"] == once["id"]);
  CHECK(again["content"] == once["content"]);
  HttpResponse other = stand.client().post("/v1/messages", message_body({{"top_k", 1}}), key);
  CHECK(other.status == 422);
  CHECK(other.json()["type"] == "error");

  json counted = message_body({{"system", "abc"}});
  counted.erase("max_tokens");
  const HttpResponse count = stand.client().post("/v1/messages/count_tokens", counted);
  CHECK(count.status == 200);
  CHECK(count.json() == json({{"input_tokens", 5}}));            // BOS, abc, x.
  counted["messages"][0]["content"] = std::string(10'000, 'x');  // Beyond the context.
  CHECK(stand.client().post("/v1/messages/count_tokens", counted).json()["input_tokens"] == 10'004);
}

}  // namespace
}  // namespace troupe::testing
