// A stream that goes on where its client stopped: GET /v1/requests/{id}/events.
#include <doctest/doctest.h>

#include <set>

#include "actors/gateway/token_counts.h"
#include "model/chat/answer_parser.h"
#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

struct Event {
  std::string id, data;
};

std::vector<Event> events_of(std::string_view body) {
  std::vector<Event> events;
  while (!body.empty()) {
    const std::size_t line = body.find('\n'), end = body.find("\n\n");
    const bool whole = body.starts_with("id: ") && end != body.npos && end > line &&
                       body.substr(line + 1).starts_with("data: ");
    if (!whole) {
      events.push_back({"BROKEN", std::string(body)});
      return events;
    }
    events.push_back({std::string(body.substr(4, line - 4)),
                      std::string(body.substr(line + 7, end - line - 7))});
    body.remove_prefix(end + 2);
  }
  return events;
}

/// What a choice's chunks are together.
struct Sum {
  std::string text, reasoning;
  json ids = json::array(), logprobs = json::object(), finish;
  int roles = 0;
  bool operator==(const Sum&) const = default;
};

std::map<int, Sum> sums_of(const std::vector<Event>& events) {
  std::map<int, Sum> sums;
  for (const Event& event : events) {
    if (event.data == "[DONE]") continue;
    const json chunk = json::parse(event.data);
    for (const json& choice : chunk.at("choices")) {
      Sum& sum = sums[choice["index"]];
      const json delta = choice.value("delta", json::object());
      sum.text += choice.value("text", delta.value("content", ""));
      sum.reasoning += delta.value("reasoning_content", "");
      sum.roles += delta.contains("role") ? 1 : 0;
      for (const json& id : choice.value("token_ids", json::array())) sum.ids.push_back(id);
      if (choice["logprobs"].is_object())
        for (const auto& [name, list] : choice["logprobs"].items())
          for (const json& item : list) sum.logprobs[name].push_back(item);
      if (!choice["finish_reason"].is_null()) sum.finish = choice["finish_reason"];
    }
  }
  return sums;
}

/// A request that has ended; its path.
std::string ended(Stand& stand, const json& body) {
  const char* path = body.contains("messages") ? "/v1/chat/completions" : "/v1/completions";
  HttpResponse answer = stand.client().post(path, body);
  REQUIRE(answer.status == 200);
  return "/v1/requests/" + answer.headers["x-request-id"] + "/events";
}

std::vector<Event> read(Stand& stand, const std::string& path, const std::string& fields = "") {
  HttpResponse answer = stand.client().get(path, fields);
  REQUIRE(answer.status == 200);
  CHECK(answer.headers["content-type"].starts_with("text/event-stream"));
  std::vector<Event> events = events_of(answer.body);
  REQUIRE_FALSE(events.empty());
  CHECK(events.back().data == "[DONE]");
  return events;
}

TEST_CASE("events from any token") {
  Stand stand;
  const std::string path = ended(stand, {{"prompt", "a"}, {"max_tokens", 8}});
  const std::string text = "abcdefgh";
  for (std::size_t from = 0; from <= text.size(); ++from) {
    CAPTURE(from);
    const auto events = read(stand, path + "?x=%zz&from=" + std::to_string(from));
    CHECK(events.back().id == "8");
    Sum sum = sums_of(events)[0];
    CHECK(sum.text == text.substr(from));
    CHECK(sum.finish == "length");
    const auto same = read(stand, path, "Last-Event-ID: " + std::to_string(from) + "\r\n");
    CHECK(sums_of(same)[0] == sum);
  }
  CHECK(sums_of(read(stand, path))[0].text == text);
  // What the client has seen last counts.
  CHECK(sums_of(read(stand, path + "?from=1", "Last-Event-ID: 6\r\n"))[0].text == "gh");
}

/// Of all events of one choice.
std::vector<std::size_t> offsets_of(const std::vector<Event>& events) {
  std::vector<std::size_t> offsets;
  for (const Event& event : events) {
    if (event.data == "[DONE]") continue;
    const json chunk = json::parse(event.data);
    for (const json& choice : chunk["choices"])
      if (!choice["logprobs"].is_null())
        for (const json& offset : choice["logprobs"]["text_offset"]) offsets.push_back(offset);
  }
  return offsets;
}

TEST_CASE("a client that has more than the head goes on where it was") {
  Stand stand;
  FakeService::Script script;
  script.wait_at = 3;
  stand.service.set(script);
  const json body{
      {"prompt", "what"}, {"max_tokens", 8}, {"stream", true}, {"echo", true}, {"logprobs", 0}};
  HttpClient asker = stand.client(), reader = stand.client();
  asker.send(post_text("/v1/completions", body.dump()));
  REQUIRE(stand.service.wait_waiting());
  const std::string path = "/v1/requests/" + stand.service.seen().back().name->id + "/events";
  reader.send("GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: 6\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // It is there before the rest.
  stand.service.go_on();
  const auto rest = events_of(reader.response().body);
  CHECK(asker.response().status == 200);
  CHECK(sums_of(rest)[0].text == "gh");
  const auto whole = offsets_of(read(stand, path));
  REQUIRE(whole.size() > 2);
  CHECK(offsets_of(rest) == std::vector<std::size_t>(whole.end() - 2, whole.end()));
}

TEST_CASE("events of several choices") {
  Stand stand;
  const json body{{"prompt", {"a", "b"}}, {"n", 2}, {"max_tokens", 6}};
  const std::string path = ended(stand, body);
  auto sums = sums_of(read(stand, path + "?from=3"));
  for (int i = 0; i < 4; ++i) CHECK(sums[i].text == "def");
  const auto events = read(stand, path + "?from=3%2C5,0,6");
  sums = sums_of(events);
  CHECK(sums[0].text == "def");
  CHECK(sums[1].text == "f");
  CHECK(sums[2].text == "abcdef");
  CHECK(sums[3].text.empty());
  CHECK(events.back().id == "6,6,6,6");
  // Whoever goes on with the id of an event gets the rest.
  for (std::size_t i = 0; i < events.size(); ++i) {
    std::vector<Event> had(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    auto rest = sums_of(read(stand, path, "Last-Event-ID: " + events[i].id + "\r\n"));
    auto before = sums_of(had);
    for (int choice = 0; choice < 4; ++choice)
      CHECK(before[choice].text + rest[choice].text == sums[choice].text);
  }
}

TEST_CASE("counts that make no sense are refused") {
  Stand stand;
  const std::string path = ended(stand, {{"prompt", {"a", "b"}}, {"n", 2}});
  for (const char* from : {"", "x", "-1", "1,2", "1,2,3,4,5", "1,2,3,", "1e3", "99999999999", "%zz",
                           "1%00", "1;2;3;4"}) {
    CAPTURE(from);
    const HttpResponse answer = stand.client().get(path + "?from=" + from);
    CHECK(answer.status == 400);
    CHECK(answer.json()["error"]["param"] == "from");
  }
  const HttpResponse answer = stand.client().get(path, "Last-Event-ID: 1,2\r\n");
  CHECK(answer.status == 400);
  CHECK(answer.json()["error"]["param"] == "Last-Event-ID");
  CHECK(stand.client().get("/v1/requests/none/events").status == 404);
  CHECK(stand.client().get("/v1/requests/none/events?from=x").status == 404);
  // More than there is: nothing is left but the end.
  CHECK(sums_of(read(stand, path + "?from=4000000000"))[0].text.empty());
}

TEST_CASE("events go on while the request runs, and a reader may leave") {
  Stand stand;
  FakeService::Script script;
  script.text = "ab";
  script.tick = 5ms;
  stand.service.set(script);
  HttpClient first = stand.client();
  const std::string body = json{{"prompt", "a"}, {"max_tokens", 300}, {"stream", true}}.dump();
  first.send(post_text("/v1/completions", body));
  REQUIRE(first.arrived());
  const std::string path =
      "/v1/requests/" + stand.service.seen().back().name->id + "/events?from=2";
  {
    HttpClient leaver = stand.client();
    leaver.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    REQUIRE(leaver.arrived());
  }
  REQUIRE(stand.service.wait_cancelled(1));
  CHECK(stand.service.running() == 1);
  HttpClient second = stand.client();
  second.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::string rest;
  for (int i = 0; i < 149; ++i) rest += "ab";
  CHECK(sums_of(events_of(second.response().body))[0].text == rest);
  // A POST's stream has no ids.
  const HttpResponse posted = first.response();
  CHECK(posted.body.find("id: ") == std::string::npos);
  CHECK(posted.events().back() == "[DONE]");
}

TEST_CASE("an error is a stream's last event") {
  Stand stand;
  FakeService::Script script;
  script.fail = unavailable("node-1 was lost.");
  script.fail_at = 4;
  stand.service.set(script);
  HttpResponse answer = stand.client().post("/v1/completions", {{"prompt", "a"}});
  const std::string path = "/v1/requests/" + answer.headers["x-request-id"] + "/events";
  const std::vector<Event> events = events_of(stand.client().get(path).body);
  REQUIRE(events.size() >= 3);
  CHECK(sums_of({events[0]})[0].text == "abcd");
  CHECK(json::parse(events[events.size() - 2].data)["error"]["message"] == "node-1 was lost.");
  CHECK(events.back().id == "4");
  // Nothing else is left: it is the answer.
  answer = stand.client().get(path + "?from=4");
  CHECK(answer.status == 503);
}

TEST_CASE("what was asked for goes on where it was") {
  const json bodies[] = {
      {{"prompt", {"a", "bb"}}, {"n", 2}, {"logprobs", 2}, {"echo", true}, {"max_tokens", 6}},
      {{"prompt", {{97, 256}, {3}}}, {"logprobs", 0}, {"echo", true}, {"max_tokens", 6}},
      {{"prompt", "a"}, {"logprobs", 0}, {"return_token_ids", true}, {"max_tokens", 6}},
      {{"messages", {{{"role", "user"}, {"content", "a"}}}},
       {"n", 2},
       {"max_tokens", 6},
       {"logprobs", true},
       {"return_token_ids", true}},
  };
  Stand stand;
  for (const json& body : bodies) {
    CAPTURE(body.dump());
    const std::string path = ended(stand, body);
    auto all = sums_of(read(stand, path));
    for (std::size_t from = 1; from < 6; ++from) {
      auto rest = sums_of(read(stand, path + "?from=" + std::to_string(from)));
      REQUIRE(rest.size() == all.size());
      for (auto& [choice, sum] : rest) {
        CAPTURE(choice);
        Sum& whole = all[choice];
        CHECK(sum.text == std::string("abcdef").substr(from));
        CHECK(whole.text.ends_with(sum.text));
        CHECK(sum.roles == 0);
        const json ids(whole.ids.begin(), whole.ids.end());
        if (!ids.empty()) CHECK(sum.ids.size() == 6 - from);
        for (const auto& [name, list] : sum.logprobs.items()) {
          CAPTURE(name);
          const json& full = whole.logprobs[name];
          REQUIRE(list.size() == 6 - from);
          for (std::size_t i = 0; i < list.size(); ++i)
            CHECK(list[i] == full[full.size() - list.size() + i]);
        }
      }
    }
  }
}

TEST_CASE("thoughts go on where they were") {
  const std::string texts[] = {"<think>ab</think>cd", " <think>a<b</thin</think>\n\ncd", "abc"};
  for (const bool opens : {false, true}) {
    ByteModel model;
    model.thinks = true;
    model.opens = opens;
    Stand stand({}, model);
    for (const std::string& text : texts) {
      CAPTURE(text);
      FakeService::Script script;
      script.text = text;
      stand.service.set(script);
      const std::string path = ended(stand, {{"messages", {{{"role", "user"}, {"content", "a"}}}}});
      Sum all = sums_of(read(stand, path))[0];
      for (std::size_t from = 0; from <= text.size(); ++from) {
        CAPTURE(from);
        const auto parser = make_answer_parser({{ReasoningStyle::kThink, opens}});
        const AnswerDelta had = parser->feed(text.substr(0, from));
        const Sum rest = sums_of(read(stand, path + "?from=" + std::to_string(from)))[0];
        // The end was reached once more.
        CHECK(had.reasoning + rest.reasoning == all.reasoning);
        CHECK(had.content + rest.text == all.text);
      }
    }
  }
}

TEST_CASE("events of a model without a tokenizer") {
  ByteModel model;
  model.tokenizer = false;
  Stand stand({}, model);
  const std::string path = ended(
      stand, {{"prompt", {1, 2}}, {"max_tokens", 4}, {"return_token_ids", true}, {"logprobs", 0}});
  CHECK(sums_of(read(stand, path + "?from=1"))[0].ids == json({98, 99, 100}));
  HttpResponse whole = stand.client().get(path.substr(0, path.rfind('/')));
  CHECK(whole.json()["choices"][0]["token_ids"] == json({97, 98, 99, 100}));
}

TEST_CASE("usage counts what the client has") {
  Stand stand;
  HttpResponse answer =
      stand.client().post("/v1/completions", {{"prompt", "a"},
                                              {"max_tokens", 5},
                                              {"stream", true},
                                              {"stream_options", {{"include_usage", true}}}});
  const auto events =
      read(stand, "/v1/requests/" + answer.headers["x-request-id"] + "/events?from=2");
  const json usage = json::parse(events[events.size() - 2].data)["usage"];
  CHECK(usage["completion_tokens"] == 5);
  CHECK(usage["prompt_tokens"] == 2);
}

TEST_CASE("what comes at once is no slowness of the client") {
  GatewayOptions options;
  options.unsent_bytes_max = 10'000;
  Stand stand(std::move(options));
  const json body{{"prompt", "a"}, {"max_tokens", 3000}, {"n", 4}, {"logprobs", 5}};
  const std::string key = "Idempotency-Key: k\r\n";
  HttpResponse whole = stand.client().post("/v1/completions", body, key);
  const std::string path = "/v1/requests/" + whole.headers["x-request-id"] + "/events";
  auto sums = sums_of(read(stand, path));
  for (int i = 0; i < 4; ++i) CHECK(sums[i].text == whole.json()["choices"][i]["text"]);
}

TEST_CASE("what comes at once takes the room of answers, and gives it back") {
  GatewayOptions options;
  options.unsent_bytes_max = 1000;
  options.answers.all_bytes_max = 200'000;
  Stand stand(std::move(options));
  const json small{{"prompt", "a"}, {"max_tokens", 2000}};
  json large = small;
  large["n"] = 4;
  const std::string path = ended(stand, small), too_large = ended(stand, large);
  for (int i = 0; i < 10; ++i) CHECK(sums_of(read(stand, path))[0].text.size() == 2000);
  HttpClient client = stand.client();
  client.send("GET " + too_large + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(client.closed_by_peer());
  CHECK(sums_of(read(stand, path + "?from=1000"))[0].text.size() == 1000);
}

}  // namespace
}  // namespace troupe::testing
