// Requests that their clients find again: by a key of their own, or by the id that they were told.
#include <doctest/doctest.h>

#include <set>
#include <thread>

#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

const std::string kKey = "Idempotency-Key: one\r\n";

json completion(bool stream, std::uint32_t tokens = 8) {
  return {{"prompt", "hi"}, {"max_tokens", tokens}, {"stream", stream}};
}

/// The texts by choice, and the ids that were seen.
struct Told {
  std::map<int, std::string> texts;
  std::set<std::string> ids;
};

Told told_by(const HttpResponse& answer) {
  Told told;
  std::vector<std::string> parts = answer.events();
  if (!answer.body.starts_with("data: ")) parts = {answer.body};
  for (const std::string& part : parts) {
    if (part == "[DONE]") continue;
    const json object = json::parse(part);
    told.ids.insert(object.at("id"));
    for (const json& choice : object.at("choices"))
      told.texts[choice["index"]] += choice["text"].get<std::string>();
  }
  return told;
}

TEST_CASE("an answer's id is in its header") {
  Stand stand;
  FakeService::Script script;
  for (const bool stream : {false, true}) {
    CAPTURE(stream);
    HttpResponse answer = stand.client().post("/v1/completions", completion(stream));
    const std::string id = answer.headers["x-request-id"];
    CHECK(id.starts_with("cmpl-"));
    CHECK(told_by(answer).ids == std::set{id});
    const json chat{{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"stream", stream}};
    answer = stand.client().post("/v1/chat/completions", chat);
    CHECK(answer.headers["x-request-id"].starts_with("chatcmpl-"));
    CHECK(answer.body.find(answer.headers["x-request-id"]) != std::string::npos);

    script.fail = unavailable("node-1 was lost.");
    stand.service.set(script);
    answer = stand.client().post("/v1/completions", completion(stream));
    CHECK(answer.status == 503);
    CHECK(answer.headers.contains("x-request-id"));
    script = {};
    script.refuse = resource_exhausted("The queue is full.");
    stand.service.set(script);
    answer = stand.client().post("/v1/completions", completion(stream));
    CHECK(answer.status == 429);
    CHECK_FALSE(answer.headers.contains("x-request-id"));
    script = {};
    stand.service.set(script);
  }
  HttpResponse answer = stand.client().post("/v1/completions", {{"prompt", 5}});
  CHECK_FALSE(answer.headers.contains("x-request-id"));
}

TEST_CASE("prompts that came together have one name") {
  GatewayOptions options;
  options.doors.api_keys = {"key", "other"};
  Stand stand(options);
  const std::string bearer = "Authorization: Bearer key\r\n";
  HttpResponse answer =
      stand.client().post("/v1/completions", {{"prompt", {"a", "b", "c"}}}, bearer + kKey);
  const std::vector<GenerationRequest> seen = stand.service.seen();
  REQUIRE(seen.size() == 3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const RequestName& name = *seen[i].name;
    CHECK(name.id == answer.headers["x-request-id"]);
    CHECK(name.index == i);
    CHECK(name.count == 3);
    CHECK(name.key == "one");
    CHECK(name.owner != 0);
    CHECK(name.body == seen[0].name->body);
  }
  stand.client().post("/v1/completions", {{"prompt", "a"}}, "Authorization: Bearer other\r\n");
  CHECK(stand.service.seen().back().name->owner != seen[0].name->owner);
  CHECK(stand.service.seen().back().name->key.empty());
}

TEST_CASE("a key that comes again gets the same answer, each token once") {
  Stand stand;
  FakeService::Script script;
  script.wait_at = 3;
  for (const bool stream : {false, true}) {
    CAPTURE(stream);
    stand.service.set(script);
    json body = completion(stream);
    body["prompt"] = {"a", "bb"};
    body["n"] = 2;
    const std::map<int, std::string> all{
        {0, "abcdefgh"}, {1, "abcdefgh"}, {2, "abcdefgh"}, {3, "abcdefgh"}};
    const std::string text = post_text("/v1/completions", body.dump(), kKey);
    HttpClient first = stand.client(), second = stand.client();
    first.send(text);
    REQUIRE(stand.service.wait_waiting());
    second.send(text);  // While it runs.
    REQUIRE(stand.service.wait_readers(4));
    stand.service.go_on();
    const HttpResponse once = first.response(), twice = second.response();
    CHECK(told_by(once).texts == all);
    CHECK(told_by(twice).texts == all);
    CHECK(told_by(twice).ids == told_by(once).ids);
    CHECK(twice.headers.at("x-request-id") == once.headers.at("x-request-id"));
    // After it ended.
    HttpResponse later = stand.client().post("/v1/completions", body, kKey);
    CHECK(told_by(later).texts == all);
    CHECK(told_by(later).ids == told_by(once).ids);
    CHECK(stand.service.kept() == 2);
    CHECK(stand.client().ask("DELETE", "/v1/requests/" + later.headers["x-request-id"]).status ==
          200);
  }
}

TEST_CASE("a key belongs to one question and one owner") {
  GatewayOptions options;
  options.doors.api_keys = {"key", "other"};
  Stand stand(options);
  const std::string key = "Authorization: Bearer key\r\n" + kKey;
  HttpResponse first = stand.client().post("/v1/completions", completion(false), key);
  CHECK(first.status == 200);
  HttpResponse answer = stand.client().post("/v1/completions", completion(false, 9), key);
  CHECK(answer.status == 422);
  CHECK(answer.json()["error"]["param"] == "Idempotency-Key");
  CHECK(answer.json()["error"]["type"] == "invalid_request_error");
  CHECK_FALSE(answer.headers.contains("x-request-id"));
  const json chat{{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  CHECK(stand.client().post("/v1/chat/completions", chat, key).status == 422);
  answer = stand.client().post("/v1/completions", completion(false, 9),
                               "Authorization: Bearer other\r\n" + kKey);
  CHECK(answer.status == 200);
  CHECK(answer.headers["x-request-id"] != first.headers["x-request-id"]);
}

TEST_CASE("keys that cannot be kept are refused") {
  Stand stand;
  const auto status = [&](const std::string& fields) {
    HttpResponse answer = stand.client().post("/v1/completions", completion(false), fields);
    if (answer.status == 400) CHECK(answer.json()["error"]["param"] == "Idempotency-Key");
    return answer.status;
  };
  CHECK(status("Idempotency-Key: " + std::string(255, 'k') + "\r\n") == 200);
  CHECK(status("idempotency-key: \"a b~!\"\r\n") == 200);
  CHECK(stand.service.seen().back().name->key == "\"a b~!\"");
  for (const std::string& fields :
       {std::string("Idempotency-Key: \r\n"), std::string("Idempotency-Key:\r\n"),
        "Idempotency-Key: " + std::string(256, 'k') + "\r\n",
        std::string("Idempotency-Key: a\tb\r\n"), std::string("Idempotency-Key: \xc3\xa9\r\n"),
        kKey + kKey, kKey + "idempotency-key: two\r\n"}) {
    CAPTURE(fields);
    CHECK(status(fields) == 400);
  }
  // Where nothing is generated it says nothing.
  CHECK(stand.client().get("/v1/models", "Idempotency-Key:\r\n").status == 200);
}

TEST_CASE("a client with a key that leaves finds its answer") {
  Stand stand;
  FakeService::Script script;
  script.text = "ab";
  script.tick = 5ms;
  stand.service.set(script);
  std::string all;
  for (int i = 0; i < 150; ++i) all += "ab";
  for (const bool stream : {false, true}) {
    CAPTURE(stream);
    const std::string key = stream ? "Idempotency-Key: s\r\n" : "Idempotency-Key: w\r\n";
    const std::size_t before = stand.service.cancelled();
    {
      HttpClient client = stand.client();
      client.send(post_text("/v1/completions", completion(stream, 300).dump(), key));
      REQUIRE(stand.service.wait_running(1));
      if (stream) REQUIRE(client.arrived());
    }
    REQUIRE(stand.service.wait_cancelled(before + 1));  // It is a reader less, and that is all.
    CHECK(stand.service.running() == 1);
    HttpResponse answer = stand.client().post("/v1/completions", completion(stream, 300), key);
    CHECK(told_by(answer).texts == std::map<int, std::string>{{0, all}});
  }
}

TEST_CASE("a request of which a prompt is refused leaves nothing") {
  Stand stand;
  FakeService::Script script;
  script.hold = true;
  script.refuse = resource_exhausted("The queue is full.");
  script.refuse_from = 1;
  stand.service.set(script);
  const json body{{"prompt", {"a", "b"}}};
  CHECK(stand.client().post("/v1/completions", body, kKey).status == 429);
  CHECK(stand.service.kept() == 0);
  stand.service.set({});
  CHECK(stand.client().post("/v1/completions", body, kKey).status == 200);
  // Those of an earlier request stay, and get the prompts that it lacks.
  CHECK(stand.service.kept() == 2);
}

TEST_CASE("what a request has is there at once") {
  Stand stand;
  FakeService::Script script;
  script.wait_at = 3;
  stand.service.set(script);
  HttpClient client = stand.client();
  client.send(post_text("/v1/completions", completion(false).dump()));
  REQUIRE(stand.service.wait_waiting());
  const std::string id = stand.service.seen().back().name->id, path = "/v1/requests/" + id;
  HttpResponse answer = stand.client().get(path);
  REQUIRE(answer.status == 200);
  CHECK(answer.json()["id"] == id);
  CHECK(answer.json()["object"] == "text_completion");
  CHECK(answer.json()["created"] == 1);
  CHECK(answer.json()["status"] == "running");
  CHECK(answer.json()["choices"][0]["text"] == "abc");
  CHECK(answer.json()["choices"][0]["finish_reason"].is_null());
  CHECK(answer.json()["usage"]["completion_tokens"] == 3);
  CHECK(answer.json()["usage"]["prompt_tokens"] == 3);
  stand.service.go_on();
  json whole = client.response().json();
  answer = stand.client().get(path);
  whole["status"] = "finished";
  CHECK(answer.json() == whole);

  script.hold = true;
  stand.service.set(script);
  HttpClient waiting = stand.client();
  waiting.send(post_text("/v1/completions", completion(false).dump()));
  REQUIRE(stand.service.wait_running(1));
  answer = stand.client().get("/v1/requests/" + stand.service.seen().back().name->id);
  CHECK(answer.json()["status"] == "queued");
  CHECK(answer.json()["choices"][0]["text"] == "");
}

TEST_CASE("a request that failed says why, with what is there") {
  Stand stand;
  FakeService::Script script;
  script.fail = deadline_exceeded("It took too long.");
  script.fail_at = 2;
  stand.service.set(script);
  HttpResponse answer =
      stand.client().post("/v1/completions", {{"prompt", {"a", "b"}}, {"n", 2}}, kKey);
  CHECK(answer.status == 408);
  const std::string path = "/v1/requests/" + answer.headers["x-request-id"];
  REQUIRE(stand.service.wait_running(0));
  answer = stand.client().get(path);
  CHECK(answer.status == 200);
  CHECK(answer.json()["status"] == "failed");
  CHECK(answer.json()["error"]["message"] == "It took too long.");
  CHECK(answer.json()["error"]["code"] == "timeout");
  REQUIRE(answer.json()["choices"].size() == 4);
  const json choices = answer.json()["choices"];
  for (const json& choice : choices) {
    CHECK(choice["text"] == "ab");
    CHECK(choice["finish_reason"].is_null());
  }
  CHECK(stand.client().get(path + "/events?from=2").status == 408);
}

TEST_CASE("what is asked for is shown again as it was") {
  const json bodies[] = {
      {{"prompt", {"a", "bb"}}, {"n", 2}, {"logprobs", 2}, {"echo", true}},
      {{"prompt", {{1, 2}, {3}}}, {"logprobs", 0}, {"echo", true}, {"return_token_ids", true}},
      {{"prompt", "a"}, {"return_token_ids", true}, {"return_tokens_as_token_ids", true}},
      {{"prompt", "ab"}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 1}},
      {{"messages", {{{"role", "user"}, {"content", "a"}}}},
       {"n", 2},
       {"max_tokens", 9},
       {"logprobs", true},
       {"top_logprobs", 2},
       {"return_token_ids", true}},
  };
  for (const bool thinks : {false, true}) {
    ByteModel model;
    model.thinks = thinks;
    Stand stand({}, model);
    for (const json& body : bodies) {
      CAPTURE(body.dump());
      const char* path = body.contains("messages") ? "/v1/chat/completions" : "/v1/completions";
      HttpResponse answer = stand.client().post(path, body);
      REQUIRE(answer.status == 200);
      json whole = answer.json();
      whole["status"] = "finished";
      CHECK(stand.client().get("/v1/requests/" + answer.headers["x-request-id"]).json() == whole);
    }
  }
}

TEST_CASE("requests are found by their owners only") {
  GatewayOptions options;
  options.doors.api_keys = {"key", "other"};
  Stand stand(options);
  const std::string key = "Authorization: Bearer key\r\n",
                    other = "Authorization: Bearer other\r\n";
  const std::string id =
      stand.client().post("/v1/completions", completion(false), key).headers["x-request-id"];
  const std::string path = "/v1/requests/" + id;
  for (const std::string& end : {std::string(), std::string("/events")}) {
    CHECK(stand.client().get(path + end, key).status == 200);
    CHECK(stand.client().get(path + end).status == 401);
    const HttpResponse answer = stand.client().get(path + end, other);
    CHECK(answer.status == 404);
    CHECK(answer.json()["error"]["code"] == "request_not_found");
  }
  CHECK(stand.client().ask("DELETE", path, other).status == 404);
  CHECK(stand.client().ask("DELETE", path).status == 401);
  CHECK(stand.client().get(path, key).status == 200);
  const HttpResponse deleted = stand.client().ask("DELETE", path, key);
  CHECK(deleted.status == 200);
  CHECK(deleted.json() == json({{"id", id}, {"object", "request.deleted"}, {"deleted", true}}));
  CHECK(stand.client().ask("DELETE", path, key).status == 404);
  CHECK(stand.client().get(path, key).status == 404);
}

TEST_CASE("what is deleted while it runs ends") {
  Stand stand;
  FakeService::Script script;
  script.wait_at = 3;
  stand.service.set(script);
  HttpClient client = stand.client();
  client.send(post_text("/v1/completions", completion(true).dump(), kKey));
  REQUIRE(client.arrived());
  REQUIRE(stand.service.wait_waiting());
  const std::string id = stand.service.seen().back().name->id;
  CHECK(stand.client().ask("DELETE", "/v1/requests/" + id).status == 200);
  const std::vector<std::string> events = client.response().events();
  REQUIRE(events.size() >= 2);
  CHECK(json::parse(events[events.size() - 2])["error"]["code"] == "cancelled");
}

TEST_CASE("paths that lead to no request") {
  Stand stand;
  HttpResponse made = stand.client().post("/v1/completions", completion(false));
  const std::string id = made.headers["x-request-id"];
  HttpClient client = stand.client();
  for (const std::string& path :
       {std::string("/v1/requests"), std::string("/v1/requests/"), std::string("/v1/requests//"),
        std::string("/v1/requests/x"), std::string("/v1/requests/x/y"),
        std::string("/v1/requests/events"), std::string("/v1/requests//events"),
        std::string("/v1/requests/x%2Fy"),

        std::string("/v1/requests/%00"), std::string("/v1/requests/..%2f..%2fetc"),
        std::string("/v1/requests/%ff%fe"), "/v1/requests/" + id + "/events/", id,
        "/v1/requests/" + id + "/", "/v1/requests/" + id + "%00", "/v1/requests/" + id + "/y",
        "/v1/requests/" + std::string(65, 'a'), "/v1/requests/" + std::string(20000, 'a'),
        "/v1/requests/" + std::string(20000, '/')}) {
    CAPTURE(path);
    for (const char* method : {"GET", "DELETE"}) {
      CHECK(client.ask(method, path).status == 404);
    }
  }
  CHECK(client.get("/v1/requests/x%2Fevents").status == 404);
  CHECK(client.get("/v1/requests/" + id).status == 200);
  for (const char* method : {"POST", "PUT", "HEAD"}) {
    HttpResponse answer = client.ask(method, "/v1/requests/" + id, "Content-Length: 0\r\n");
    CHECK(answer.status == 405);
    CHECK(answer.headers["allow"] == "GET, DELETE");
    answer = client.ask(method, "/v1/requests/" + id + "/events", "Content-Length: 0\r\n");
    CHECK(answer.status == 405);
    CHECK(answer.headers["allow"] == "GET");
  }
  CHECK(client.ask("DELETE", "/v1/requests/" + id + "/events").status == 405);
}

TEST_CASE("a prompt that was not accepted is an error of the answer") {
  Stand stand;
  HttpResponse made = stand.client().post("/v1/completions", {{"prompt", {"a", "b", "c"}}});
  const std::string id = made.headers["x-request-id"];
  stand.service.lose(id, 2);
  stand.service.lose(id, 0);
  const json answer = stand.client().get("/v1/requests/" + id).json();
  CHECK(answer["status"] == "failed");
  CHECK(answer["error"]["message"].get<std::string>().starts_with("Prompt 0"));
  REQUIRE(answer["choices"].size() == 3);
  CHECK(answer["choices"][0]["text"] == "");
  CHECK(answer["choices"][1]["text"] == "abcdefghijklmnop");
  const HttpResponse events = stand.client().get("/v1/requests/" + id + "/events");
  CHECK(events.status == 503);
}

TEST_CASE("a form that is broken is an error and no more") {
  Stand stand;
  HttpResponse made = stand.client().post("/v1/completions", completion(false));
  const std::string id = made.headers["x-request-id"];
  for (const char* form : {"", "{", R"({"n": 100000})", R"({"chat": 1})", R"({"tokens": 1e18})"}) {
    CAPTURE(form);
    stand.service.spoil(id, form);
    CHECK(stand.client().get("/v1/requests/" + id).status == 500);
    CHECK(stand.client().get("/v1/requests/" + id + "/events").status == 500);
  }
  // Of another request: wrong, but whole.
  for (const char* form : {R"({"chat": true, "n": 1})", R"({"n": 3})", R"({"echo": true})"}) {
    CAPTURE(form);
    stand.service.spoil(id, form);
    CHECK(stand.client().get("/v1/requests/" + id).status == 200);
    CHECK(stand.client().ask("DELETE", "/v1/requests/" + id + "x").status == 404);
  }
}

TEST_CASE("memory for an answer that is asked for again is taken before") {
  GatewayOptions options;
  options.answers = {.one_bytes_max = 1 << 20, .all_bytes_max = 1000};
  Stand stand(std::move(options));
  const json body{{"prompt", "a"}, {"max_tokens", 100}, {"logprobs", 5}, {"stream", true}};
  HttpResponse answer = stand.client().post("/v1/completions", body);
  REQUIRE(answer.status == 200);
  answer = stand.client().get("/v1/requests/" + answer.headers["x-request-id"]);
  CHECK(answer.status == 429);
  CHECK(answer.headers.contains("retry-after"));
}

TEST_CASE("a client's own X-Request-Id is echoed, and the answer's id finds the request") {
  Stand stand;
  const std::string own = "trace 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01~!";
  for (const bool stream : {false, true}) {
    HttpResponse answer = stand.client().post("/v1/completions", completion(stream),
                                              "X-Request-Id: " + own + "\r\n");
    REQUIRE(answer.status == 200);
    CHECK(answer.headers["x-request-id"] == own);
    const std::size_t at = answer.body.find("\"cmpl-");
    REQUIRE(at != std::string::npos);
    const std::string id = answer.body.substr(at + 1, answer.body.find('"', at + 1) - at - 1);
    CHECK(id.size() == std::string("cmpl-").size() + 128 / 4);
    CHECK(stand.client().get("/v1/requests/" + id).status == 200);
  }
  // Also of what fails, and of what generates nothing.
  for (const char* path : {"/v1/models", "/v1/requests/x", "/nowhere"}) {
    CAPTURE(path);
    HttpResponse answer = stand.client().ask("GET", path, "X-Request-Id: 7\r\n");
    CHECK(answer.headers["x-request-id"] == "7");
  }
  // One that cannot be echoed is as none.
  for (const std::string& bad :
       {std::string("X-Request-Id: \r\n"), "X-Request-Id: " + std::string(129, 'a') + "\r\n",
        std::string("X-Request-Id: caf\xc3\xa9\r\n"), std::string("X-Request-Id: a\tb\r\n"),
        std::string("X-Request-Id: a\r\nX-Request-Id: b\r\n")}) {
    CAPTURE(bad);
    HttpResponse answer = stand.client().post("/v1/completions", completion(false), bad);
    REQUIRE(answer.status == 200);
    CHECK(answer.headers["x-request-id"].starts_with("cmpl-"));
  }
}

TEST_CASE("pages of allowed sites may do all of it") {
  GatewayOptions options;
  options.doors.sites.origins = {"https://app.example"};
  Stand stand(options);
  const std::string origin = "Origin: https://app.example\r\n";
  HttpResponse answer = stand.client().ask("OPTIONS", "/v1/requests/x",
                                           origin + "Access-Control-Request-Method: DELETE\r\n");
  CHECK(answer.status == 200);
  CHECK(answer.headers["access-control-allow-methods"].find("DELETE") != std::string::npos);
  answer = stand.client().post("/v1/completions", completion(false), origin);
  CHECK(answer.headers["access-control-expose-headers"].find("X-Request-Id") != std::string::npos);
}

}  // namespace
}  // namespace troupe::testing
