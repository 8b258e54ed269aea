// POST /v1/responses: the object, the events, and what follows a response.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/gateway/stand.h"
#include "tests/actors/gateway/thinking_caller.h"
#include "tests/actors/gateway/typed_events.h"

namespace troupe::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

const json kToolF = {{"type", "function"}, {"name", "f"}};

json response_body(json more = json::object()) {
  json body = {{"input", "x"}, {"tools", {kToolF}}};
  body.update(more);
  return body;
}

/// The items as a client builds them: from deltas, and from "done".
struct Built {
  std::map<int, std::string> deltas, done;
  std::map<int, json> items;
};

Built built_of(const std::vector<TypedEvent>& events) {
  Built built;
  for (const TypedEvent& event : events) {
    const json& data = event.data;
    CHECK(data["type"] == event.type);
    const int index = data.value("output_index", -1);
    if (data.contains("delta")) built.deltas[index] += data["delta"].get<std::string>();
    if (event.type == "response.output_item.done") built.items[index] = data["item"];
    if (event.type.ends_with("text.done")) built.done[index] = data["text"].get<std::string>();
    if (event.type.ends_with("arguments.done"))
      built.done[index] = data["arguments"].get<std::string>();
  }
  return built;
}

/// What differs from one request to the next.
json without_ids(json output) {
  for (json& item : output) {
    item.erase("id");
    item.erase("call_id");
  }
  return output;
}

TEST_CASE("a response is made of items in the model's order") {
  Stand stand({}, thinking_caller());
  stand.service.set(script_of_all());
  HttpResponse answer =
      stand.client().post("/v1/responses", response_body({{"metadata", {{"k", "v"}}}}));
  REQUIRE(answer.status == 200);
  const json object = answer.json(), output = object["output"];
  CHECK(object["id"] == answer.headers["x-request-id"]);
  CHECK(object["id"].get<std::string>().starts_with("resp_"));
  CHECK(object["object"] == "response");
  CHECK(object["status"] == "completed");
  CHECK(object["error"].is_null());
  CHECK(object["incomplete_details"].is_null());
  CHECK(object["metadata"] == json({{"k", "v"}}));
  CHECK(object["tools"] == json({kToolF}));
  REQUIRE(output.size() == 4);
  CHECK(output[0]["type"] == "reasoning");
  CHECK(output[0]["content"][0]["text"] == "Hm, so.");
  CHECK(output[1]["type"] == "message");
  CHECK(output[1]["content"][0]["text"] == "Let me see.");
  for (int i = 2; i < 4; ++i) {
    CHECK(output[i]["type"] == "function_call");
    CHECK(output[i]["name"] == "f");
    CHECK(output[i]["arguments"] == "{\"a\": " + std::to_string(i - 1) + "}");
    CHECK(output[i]["call_id"].get<std::string>().starts_with("call_"));
  }
  CHECK(output[2]["call_id"] != output[3]["call_id"]);
  const json usage = object["usage"];
  CHECK(usage["input_tokens"] == 3);
  CHECK(usage["output_tokens"] == kThoughtTextAndCalls.size());
  CHECK(usage["total_tokens"] == 3 + kThoughtTextAndCalls.size());

  const json one =
      stand.client().post("/v1/responses", response_body({{"parallel_tool_calls", false}})).json();
  CHECK(one["output"].size() == 3);
  const json cut =
      stand.client().post("/v1/responses", response_body({{"max_output_tokens", 9}})).json();
  CHECK(cut["status"] == "incomplete");
  CHECK(cut["incomplete_details"]["reason"] == "max_output_tokens");
  CHECK(cut["output"][0]["status"] == "incomplete");
}

TEST_CASE("a stream tells a response in typed events") {
  Stand stand({}, thinking_caller());
  stand.service.set(script_of_all(200us));
  const json whole = stand.client().post("/v1/responses", response_body()).json();
  HttpResponse answer = stand.client().post("/v1/responses", response_body({{"stream", true}}));
  const auto events = typed_events(answer.body);
  const std::vector<std::string> call = {
      "response.output_item.added", "response.function_call_arguments.delta",
      "response.function_call_arguments.done", "response.output_item.done"};
  std::vector<std::string> types = {"response.created", "response.in_progress"};
  for (const std::string kind : {"reasoning_text", "output_text"})
    for (const std::string& type :
         {std::string("output_item.added"), std::string("content_part.added"), kind + ".delta",
          kind + ".done", std::string("content_part.done"), std::string("output_item.done")})
      types.push_back("response." + type);
  for (int i = 0; i < 2; ++i) types.insert(types.end(), call.begin(), call.end());
  types.push_back("response.completed");
  CHECK(types_of(events) == types);
  for (std::size_t i = 0; i < events.size(); ++i) {
    CHECK(events[i].data["sequence_number"] == i);
    CHECK(events[i].id.empty());
  }
  const json first = events[0].data["response"], last = events.back().data["response"];
  CHECK(first["status"] == "in_progress");
  CHECK(first["output"].empty());
  CHECK(first["usage"].is_null());
  CHECK(last["status"] == "completed");
  CHECK(last["usage"] == whole["usage"]);
  CHECK(without_ids(last["output"]) == without_ids(whole["output"]));
  Built built = built_of(events);
  CHECK(built.deltas == built.done);
  for (int i = 0; i < 4; ++i) CHECK(built.items[i] == last["output"][i]);
}

TEST_CASE("a response's stream goes on where its client stopped") {
  Stand stand({}, thinking_caller());
  stand.service.set(script_of_all(100us));
  HttpResponse answer = stand.client().post("/v1/responses", response_body({{"stream", true}}));
  const std::string path = "/v1/requests/" + answer.headers["x-request-id"] + "/events?from=";
  const auto all = typed_events(answer.body);
  const Built whole = built_of(all);
  for (std::size_t from = 0; from <= kThoughtTextAndCalls.size(); ++from) {
    CAPTURE(from);
    const auto rest = typed_events(stand.client().get(path + std::to_string(from)).body);
    REQUIRE_FALSE(rest.empty());
    CHECK(rest.back().id == std::to_string(kThoughtTextAndCalls.size()));
    json resumed = rest.back().data["response"], first = all.back().data["response"];
    for (json* response : {&resumed, &first}) response->erase("created_at");  // the double's is 1
    CHECK(resumed == first);
    if (from > 0) CHECK(rest[0].type != "response.created");
    const std::size_t before = all.size() - rest.size();
    for (std::size_t i = 0; i < rest.size(); ++i) {
      CHECK(rest[i].data["sequence_number"] == before + i);
      CHECK(rest[i].type == all[before + i].type);
      CHECK(rest[i].data.value("delta", "") == all[before + i].data.value("delta", ""));
    }
    Built more = built_of(rest);
    for (auto& [index, text] : more.deltas) CHECK(whole.deltas.at(index).ends_with(text));
    for (auto& [index, text] : more.done) CHECK(whole.done.at(index) == text);
  }
}

TEST_CASE("a response follows another one") {
  GatewayOptions options;
  options.doors.api_keys = {"one", "two"};
  Stand stand(std::move(options), thinking_caller());
  stand.service.set(script_of_all());
  const std::string one = "Authorization: Bearer one\r\n", two = "Authorization: Bearer two\r\n";
  const auto post = [&](const json& body, const std::string& key) {
    return stand.client().post("/v1/responses", body, key);
  };
  const json first = post(response_body({{"instructions", "old"}}), one).json();
  const json result = {{"type", "function_call_output"},
                       {"call_id", first["output"][2]["call_id"]},
                       {"output", "r"}};
  const json next = response_body({{"input", {result}}, {"previous_response_id", first["id"]}});
  for (const bool stream : {false, true}) {
    json body = next;
    body["stream"] = stream;
    CHECK(post(body, one).status == 200);
    const auto seen = std::get<std::vector<ChatMessage>>(stand.service.seen().back().prompt);
    REQUIRE(seen.size() == 3);
    CHECK(seen[0].role == "user");
    CHECK(seen[1].role == "assistant");
    CHECK(seen[1].content == "Let me see.");
    REQUIRE(seen[1].tool_calls.size() == 2);
    CHECK(seen[1].tool_calls[0].id == first["output"][2]["call_id"]);
    CHECK(seen[1].tool_calls[1].arguments == "{\"a\": 2}");
    CHECK(seen[2].role == "tool");
    CHECK(seen[2].tool_call_id == first["output"][2]["call_id"]);
  }
  // By the items' own ids, too.
  json named = json::array();
  for (const json& item : first["output"])
    named.push_back({{"type", "item_reference"}, {"id", item["id"]}});
  named.push_back(result);
  CHECK(post(response_body({{"input", named}}), one).status == 200);
  const auto by_name = std::get<std::vector<ChatMessage>>(stand.service.seen().back().prompt);
  REQUIRE(by_name.size() == 2);
  CHECK(by_name[0].parts == std::vector<std::string>{"Let me see."});
  CHECK(by_name[0].reasoning_content == "Hm, so.");
  CHECK(by_name[0].tool_calls.size() == 2);
  CHECK(post(response_body({{"input", named}}), two).status == 400);
  const std::string of_first = first["output"][0]["id"].get<std::string>();
  for (const char* const end : {"9", "", "x", "0x", "-0", "99999999999999999999999", "0_0"}) {
    const std::string id = of_first.substr(0, of_first.size() - 1) + end;
    CAPTURE(id);
    const json body = response_body({{"input", {{{"type", "item_reference"}, {"id", id}}}}});
    CHECK(post(body, one).json()["error"]["param"] == "input");
  }
  // The third has all that came before.
  const json second = post(next, one).json();
  CHECK(post(response_body({{"previous_response_id", second["id"]}}), one).status == 200);
  CHECK(std::get<std::vector<ChatMessage>>(stand.service.seen().back().prompt).size() == 5);

  const auto refused = [&](const json& id, int status, const std::string& key) {
    const HttpResponse answer = post(response_body({{"previous_response_id", id}}), key);
    CHECK(answer.status == status);
    CHECK(answer.json()["error"]["param"] == "previous_response_id");
  };
  refused(first["id"], 400, two);
  refused("resp_none", 400, one);
  refused(std::string(100'000, 'x'), 400, one);
  refused(post(response_body({{"store", false}}), one).json()["id"], 400, one);
  const json chat{{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  refused(stand.client().post("/v1/chat/completions", chat, one).json()["id"], 400, one);
  FakeService::Script held = script_of_all();
  held.hold = true;
  stand.service.set(held);
  HttpClient waiting = stand.client();
  waiting.send(post_text("/v1/responses", response_body().dump(), one));
  REQUIRE(stand.service.wait_running(1));
  refused(stand.service.seen().back().name->id, 400, one);
}

TEST_CASE("a response is found and deleted by its id") {
  Stand stand({}, thinking_caller());
  stand.service.set(script_of_all());
  const json object = stand.client().post("/v1/responses", response_body()).json();
  const std::string id = object["id"];
  json found = stand.client().get("/v1/responses/" + id).json();
  CHECK(found["output"] == object["output"]);
  CHECK(found["status"] == "completed");
  CHECK(found["usage"] == object["usage"]);
  CHECK(stand.client().get("/v1/requests/" + id).json() == found);
  // As a stream that is over.
  const auto events = typed_events(stand.client().get("/v1/responses/" + id + "?stream=true").body);
  CHECK(events.front().type == "response.created");
  CHECK(events.front().data["sequence_number"] == 0);
  CHECK(events.back().data["response"]["output"] == object["output"]);
  CHECK(stand.client().post("/v1/responses/" + id + "/cancel", json::object()).status == 400);
  CHECK(stand.client().post("/v1/responses/resp_none/cancel", json::object()).status == 404);
  CHECK(stand.client().ask("DELETE", "/v1/responses/" + id).json() ==
        json({{"id", id}, {"object", "response"}, {"deleted", true}}));
  CHECK(stand.client().get("/v1/responses/" + id).status == 404);
  const json chat{{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  const json other = stand.client().post("/v1/chat/completions", chat).json();
  CHECK(stand.client().get("/v1/responses/" + other["id"].get<std::string>()).status == 404);
  CHECK(stand.client().get("/v1/responses").status == 405);
}

TEST_CASE("what a response was asked is listed as items") {
  Stand stand({}, thinking_caller());
  stand.service.set(script_of_all());
  const json first = stand.client().post("/v1/responses", response_body()).json();
  const json result = {{"type", "function_call_output"},
                       {"call_id", first["output"][2]["call_id"]},
                       {"output", "r"}};
  const json next =
      stand.client()
          .post("/v1/responses",
                response_body({{"input", {result}}, {"previous_response_id", first["id"]}}))
          .json();
  const std::string path = "/v1/responses/" + next["id"].get<std::string>() + "/input_items";
  const json all = stand.client().get(path + "?order=asc").json();
  CHECK(all["object"] == "list");
  CHECK(all["has_more"] == false);
  std::vector<std::string> types;
  for (const json& item : all["data"]) types.push_back(item["type"]);
  CHECK(types == std::vector<std::string>{"message", "reasoning", "message", "function_call",
                                          "function_call", "function_call_output"});
  CHECK(all["data"][0]["content"][0] == json({{"type", "input_text"}, {"text", "x"}}));
  CHECK(all["data"][2]["content"][0]["text"] == "Let me see.");
  CHECK(all["data"][3]["call_id"] == first["output"][2]["call_id"]);
  CHECK(all["data"][5]["output"] == "r");
  CHECK(all["first_id"] == all["data"][0]["id"]);
  // Page by page, the last first.
  std::vector<json> seen;
  for (std::string after; seen.size() < 6;) {
    const json page = stand.client().get(path + "?limit=4" + after).json();
    REQUIRE_FALSE(page["data"].empty());
    seen.insert(seen.end(), page["data"].begin(), page["data"].end());
    after = "&after=" + page["last_id"].get<std::string>();
    CHECK(page["has_more"] == (seen.size() < 6));
  }
  std::ranges::reverse(seen);
  CHECK(json(seen) == all["data"]);
  for (const char* const wrong : {"?limit=0", "?limit=x", "?limit=101", "?order=up", "?after=y",
                                  "?limit=1&limit=2", "?order=asc&order=asc", "?before=y"})
    CHECK(stand.client().get(path + wrong).status == 400);
  const json unkept =
      stand.client().post("/v1/responses", response_body({{"store", false}})).json();
  // What was not to be stored is no Response that could be found, but a request as any other.
  const std::string id = unkept["id"];
  for (const char* const part : {"", "?stream=true", "/input_items"}) {
    const HttpResponse gone = stand.client().get("/v1/responses/" + id + part);
    CHECK(gone.status == 404);
    CHECK(gone.json()["error"]["message"].get<std::string>().find("not stored") !=
          std::string::npos);
  }
  CHECK(stand.client().get("/v1/requests/" + id).json()["output"] == unkept["output"]);
  CHECK(stand.client().ask("DELETE", "/v1/responses/" + id).status == 404);
  CHECK(stand.client().ask("DELETE", "/v1/requests/" + id).status == 200);
  CHECK(stand.client().get("/v1/requests/" + id).status == 404);
}

TEST_CASE("a response that runs, fails or is response_body for twice") {
  Stand stand({}, thinking_caller());
  FakeService::Script waits = script_of_all();
  waits.wait_at = 12;
  stand.service.set(waits);
  HttpClient client = stand.client();
  client.send(post_text("/v1/responses", response_body().dump()));
  REQUIRE(stand.service.wait_waiting());
  const std::string id = stand.service.seen().back().name->id;
  const json running = stand.client().get("/v1/responses/" + id).json();
  CHECK(running["status"] == "in_progress");
  CHECK(running["usage"].is_null());
  CHECK(running["output"][0]["status"] == "in_progress");
  stand.service.go_on();
  CHECK(client.response().json()["status"] == "completed");

  FakeService::Script fails = script_of_all();
  fails.fail = unavailable("node-1 was lost.");
  fails.fail_at = 12;
  fails.wait_to_fail = true;  // An error before the stream's first byte would be a status.
  stand.service.set(fails);
  HttpClient streamed = stand.client();
  streamed.send(post_text("/v1/responses", response_body({{"stream", true}}).dump()));
  REQUIRE(streamed.arrived());
  stand.service.go_on();
  HttpResponse failed = streamed.response();
  fails.wait_to_fail = false;
  stand.service.set(fails);
  const auto events = typed_events(failed.body);
  CHECK(events.back().type == "response.failed");
  CHECK(events.back().data["response"]["status"] == "failed");
  CHECK(events.back().data["response"]["error"]["message"] == "node-1 was lost.");
  const std::string failed_id = failed.headers["x-request-id"];
  const json object = stand.client().get("/v1/responses/" + failed_id).json();
  CHECK(object["status"] == "failed");
  CHECK(object["error"]["message"] == "node-1 was lost.");
  CHECK(stand.client().post("/v1/responses", response_body()).status == 503);
  const HttpResponse after =
      stand.client().post("/v1/responses", response_body({{"previous_response_id", failed_id}}));
  CHECK(after.status == 400);

  stand.service.set(script_of_all());
  const std::string key = "Idempotency-Key: k\r\n";
  const json once = stand.client().post("/v1/responses", response_body(), key).json();
  CHECK(stand.client().post("/v1/responses", response_body(), key).json()["id"] == once["id"]);
  CHECK(stand.client().post("/v1/responses", response_body({{"seed", 1}}), key).status == 422);
}

TEST_CASE("errors of a response name its fields") {
  Stand stand({}, thinking_caller());
  const HttpResponse bad =
      stand.client().post("/v1/responses", response_body({{"max_output_tokens", 0}}));
  CHECK(bad.status == 400);
  CHECK(bad.json()["error"]["param"] == "max_output_tokens");
  FakeService::Script refuses = script_of_all();
  refuses.refuse = invalid_argument("max_tokens: too many.");
  stand.service.set(refuses);
  const HttpResponse late = stand.client().post("/v1/responses", response_body());
  CHECK(late.status == 400);
  CHECK(late.json()["error"]["param"] == "max_output_tokens");
  CHECK(stand.client().post("/v1/responses", json::array()).status == 400);
}

}  // namespace
}  // namespace troupe::testing
