#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <set>

#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

json chat_body() {
  return {{"messages", {{{"role", "user"}, {"content", "hello"}}}}, {"max_tokens", 3}};
}

std::string text_of(const std::vector<std::string>& events) {
  std::string text;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const json chunk = json::parse(event);
    for (const json& choice : chunk["choices"]) {
      text += choice.contains("delta") ? choice["delta"].value("content", "")
                                       : choice["text"].get<std::string>();
    }
  }
  return text;
}

TEST_CASE("completions and chats, whole and streamed") {
  Stand stand;
  HttpClient client = stand.client();  // One connection for all: it is kept alive.
  HttpResponse answer = client.post("/v1/completions", {{"prompt", "hi"}, {"max_tokens", 5}});
  CHECK(answer.status == 200);
  CHECK(answer.headers["content-type"] == "application/json");
  CHECK(answer.json()["choices"][0]["text"] == "abcde");
  CHECK(answer.json()["choices"][0]["finish_reason"] == "length");
  CHECK(answer.json()["usage"]["prompt_tokens"] == 3);

  answer = client.post("/v1/chat/completions", chat_body());
  CHECK(answer.status == 200);
  CHECK(answer.json()["choices"][0]["message"]["content"] == "abc");

  for (const bool chat : {false, true}) {
    json body = chat ? chat_body() : json{{"prompt", "hi"}, {"max_tokens", 3}};
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    answer = client.post(chat ? "/v1/chat/completions" : "/v1/completions", body);
    CHECK(answer.status == 200);
    CHECK(answer.headers["content-type"].starts_with("text/event-stream"));
    const std::vector<std::string> events = answer.events();
    REQUIRE(events.size() >= 3);
    CHECK(events.back() == "[DONE]");
    CHECK(text_of(events) == "abc");
    CHECK(json::parse(events[events.size() - 2])["usage"]["completion_tokens"] == 3);
  }
  CHECK(stand.service.running() == 0);
  CHECK(stand.service.cancelled() == 0);
}

TEST_CASE("several prompts and choices come back prompt by prompt") {
  Stand stand;
  const json body{{"prompt", {"a", "bb"}}, {"n", 2}, {"max_tokens", 2}};
  HttpResponse answer = stand.client().post("/v1/completions", body);
  REQUIRE(answer.status == 200);
  const json choices = answer.json()["choices"];
  REQUIRE(choices.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(choices[i]["index"] == i);
    CHECK(choices[i]["text"] == "ab");
  }
  CHECK(answer.json()["usage"] ==
        json({{"prompt_tokens", 5},
              {"completion_tokens", 8},
              {"total_tokens", 13},
              {"prompt_tokens_details", {{"cached_tokens", 0}}}}));

  json streamed = body;
  streamed["stream"] = true;
  answer = stand.client().post("/v1/completions", streamed);
  std::map<int, std::string> texts;
  for (const std::string& event : answer.events()) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    texts[choice["index"]] += choice["text"].get<std::string>();
  }
  CHECK(texts == std::map<int, std::string>{{0, "ab"}, {1, "ab"}, {2, "ab"}, {3, "ab"}});
}

TEST_CASE("the small answers") {
  Stand stand;
  HttpClient client = stand.client();
  HttpResponse answer = client.get("/v1/models");
  CHECK(answer.json()["data"][0]["id"] == "bytes");
  CHECK(answer.json()["data"][0]["max_model_len"] == 4096);
  CHECK(client.get("/v1/models/bytes").status == 200);
  CHECK(client.get("/v1/models/other").status == 404);
  answer = client.post("/tokenize", {{"prompt", "ab"}});
  CHECK(answer.json() == json({{"tokens", {256, 97, 98}}, {"count", 3}, {"max_model_len", 4096}}));
  answer = client.post("/tokenize", {{"prompt", "ab"}, {"add_special_tokens", false}});
  CHECK(answer.json()["tokens"] == json({97, 98}));
  CHECK(client.post("/detokenize", {{"tokens", {97, 98}}}).json() == json({{"prompt", "ab"}}));
  CHECK(client.post("/detokenize", {{"tokens", {97, 300}}}).json()["error"]["param"] == "tokens");
  CHECK(client.get("/cluster/status?x=1").json()["cluster"]["state"] == "ready");
  const json history = client.get("/cluster/history").json();
  CHECK(history["slot_s"] == 5);
  CHECK(history["running"].size() == history["ttft_ms"]["p99"].size());
  CHECK(history["running"].size() == history["inter_token_ms"]["p50"].size());
  CHECK(history["utilization"] == json::object());
  CHECK(client.get("/version").json().contains("version"));
  answer = client.get("/metrics");
  CHECK(answer.headers["content-type"].starts_with("text/plain"));
  CHECK(answer.body.find("troupe:num_requests_running{model_name=\"bytes\"}") != std::string::npos);
  CHECK(client.get("/health").status == 200);
  stand.cluster.is_ready = false;
  answer = client.get("/health");
  CHECK(answer.status == 503);
  CHECK(answer.headers.contains("retry-after"));
  CHECK(answer.json()["error"]["message"] == "The cluster is forming.");
  client.send("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  answer = client.response(true);
  CHECK(answer.status == 200);
  CHECK(client.get("/health").status == 503);  // The answer to HEAD had no body.
}

TEST_CASE("paths, methods and models that are not there") {
  Stand stand;
  HttpClient client = stand.client();
  CHECK(client.get("/nothing").status == 404);
  HttpResponse answer = client.get("/v1/completions");
  CHECK(answer.status == 405);
  CHECK(answer.headers["allow"] == "POST");
  answer = client.post("/v1/completions", {{"model", "other"}, {"prompt", "a"}});
  CHECK(answer.status == 404);
  CHECK(answer.json()["error"]["code"] == "model_not_found");
  answer = client.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", -1}});
  CHECK(answer.status == 400);
  CHECK(answer.json()["error"]["param"] == "max_tokens");
  CHECK(client.get("/health").status == 200);
}

TEST_CASE("keys open everything but health") {
  GatewayOptions options;
  options.doors.api_keys = {"first-key", "second-key"};
  Stand stand(std::move(options));
  HttpClient client = stand.client();
  CHECK(client.get("/health").status == 200);
  CHECK(client.get("/metrics").status == 401);
  CHECK(client.get("/metrics", "Authorization: Bearer first-key\r\n").status == 200);
  CHECK(client.get("/v1/models", "Authorization: Bearer first-key\r\n").status == 200);
  CHECK(client.get("/v1/models", "authorization: bearer second-key\r\n").status == 200);
  for (const char* header :
       {"", "Authorization: Bearer first-ke\r\n", "Authorization: first-key\r\n",
        "Authorization: Bearer \r\n", "Authorization: Basic first-key\r\n"}) {
    HttpResponse answer = client.get("/cluster/status", header);
    CHECK(answer.status == 401);
    CHECK(answer.json()["error"]["code"] == "invalid_api_key");
    CHECK(client.get("/nothing", header).status == 401);
  }
  // A stranger's body is not waited for.
  HttpClient stranger = stand.client();
  stranger.send(kPostCompletion + "Content-Length: 1000000\r\n\r\n{");
  CHECK(stranger.response().status == 401);
}

TEST_CASE("errors of the cluster have their status codes") {
  struct Case {
    Error error;
    int status;
  };
  const Case cases[] = {
      {invalid_argument("top_p: must be in (0, 1]."), 400},
      {resource_exhausted("The queue is full."), 429},
      {unavailable("No device has joined."), 503},
      {deadline_exceeded("The request took longer than 600 s."), 408},
      {internal_error("A defect."), 500},
  };
  Stand stand;
  HttpClient client = stand.client();
  for (const Case& c : cases) {
    CAPTURE(c.status);
    for (const bool at_once : {true, false}) {
      FakeService::Script script;
      (at_once ? script.refuse : script.fail) = c.error;
      stand.service.set(script);
      for (const bool stream : {false, true}) {
        HttpResponse answer = client.post("/v1/completions", {{"prompt", "a"}, {"stream", stream}});
        CHECK(answer.status == c.status);
        CHECK(answer.json()["error"]["message"] == c.error.message);
        CHECK(answer.headers.contains("retry-after") == (c.status == 429 || c.status == 503));
        if (c.status == 400) CHECK(answer.json()["error"]["param"] == "top_p");
      }
    }
  }
}

TEST_CASE("an error within a stream is its last event") {
  Stand stand;
  FakeService::Script script;
  script.fail = unavailable("node-1 was lost.");
  script.fail_at = 2;
  script.wait_to_fail = true;
  stand.service.set(script);
  HttpClient client = stand.client();
  client.send(post_text("/v1/completions", R"({"prompt": "a", "stream": true})"));
  REQUIRE(client.arrived());
  stand.service.go_on();
  HttpResponse answer = client.response();
  CHECK(answer.status == 200);
  const std::vector<std::string> events = answer.events();
  REQUIRE(events.size() >= 3);
  CHECK(events.back() == "[DONE]");
  CHECK(json::parse(events[events.size() - 2])["error"]["message"] == "node-1 was lost.");
}

TEST_CASE("an error of one prompt ends the others") {
  Stand stand;
  FakeService::Script script;
  script.hold = true;
  stand.service.set(script);
  HttpClient client = stand.client();
  client.send(post_text("/v1/completions", R"({"prompt": ["a", "b"]})"));
  REQUIRE(stand.service.wait_running(2));
  script.hold = false;
  script.refuse = resource_exhausted("The queue is full.");
  stand.service.set(script);
  CHECK(stand.client().post("/v1/completions", {{"prompt", {"a", "b"}}}).status == 429);
  CHECK(stand.service.running() == 2);  // The first request is untouched.
}

TEST_CASE("a client that goes away cancels its request at once") {
  Stand stand;
  FakeService::Script script;
  for (const bool stream : {false, true}) {
    CAPTURE(stream);
    script.hold = !stream;
    script.tick = 5ms;
    stand.service.set(script);
    const std::size_t before = stand.service.cancelled();
    {
      HttpClient client = stand.client();
      const json body{{"prompt", {"a", "b"}}, {"stream", stream}, {"max_tokens", 100000}};
      client.send(post_text("/v1/completions", body.dump()));
      REQUIRE(stand.service.wait_running(2));
      if (stream) CHECK_FALSE(client.receive().empty());
    }
    CHECK(stand.service.wait_running(0));
    CHECK(stand.service.cancelled() == before + 2);
  }
}

TEST_CASE("a prompt may be asked for without special tokens") {
  Stand stand;
  CHECK(stand.client()
            .post("/v1/completions", {{"prompt", "ab"}, {"add_special_tokens", false}})
            .json()["usage"]["prompt_tokens"] == 2);
  CHECK(!stand.service.seen().at(0).add_special_tokens);
}

TEST_CASE("a model without a tokenizer answers in ids") {
  ByteModel model;
  model.tokenizer = false;
  Stand stand({}, model);
  HttpClient client = stand.client();
  CHECK(client.post("/v1/completions", {{"prompt", "a"}}).json()["error"]["param"] == "prompt");
  const json choice =
      client
          .post(
              "/v1/completions",
              {{"prompt", {1, 2}}, {"max_tokens", 2}, {"logprobs", 0}, {"return_token_ids", true}})
          .json()["choices"][0];
  CHECK(choice["text"] == "");
  CHECK(choice["token_ids"] == json({97, 98}));
  CHECK(choice["logprobs"]["tokens"] == json({"token_id:97", "token_id:98"}));
}

TEST_CASE("requests may be sent one behind the other") {
  Stand stand;
  HttpClient client = stand.client();
  const std::string one = post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 2})");
  std::string many;
  for (int i = 0; i < 50; ++i) many += one;
  REQUIRE(client.send(many));
  for (int i = 0; i < 50; ++i) {
    HttpResponse answer = client.response();
    REQUIRE(answer.status == 200);
    CHECK(answer.json()["choices"][0]["text"] == "ab");
  }
}

TEST_CASE("HTTP/1.0, Connection: close and Expect") {
  Stand stand;
  const std::string body = R"({"prompt": "a", "max_tokens": 2, "stream": true})";
  const std::string length = "Content-Length: " + std::to_string(body.size());
  HttpClient old = stand.client();
  old.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n" + length +
           "\r\n\r\n" + body);
  HttpResponse answer = old.response();
  CHECK(answer.status == 200);
  CHECK(answer.headers["transfer-encoding"].empty());
  CHECK(text_of(answer.events()) == "ab");

  HttpClient closing = stand.client();
  closing.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  CHECK(closing.response().headers["connection"] == "close");
  CHECK(closing.closed_by_peer());

  HttpClient patient = stand.client();
  patient.send(kPostCompletion + "Expect: 100-continue\r\n" + length + "\r\n\r\n");
  CHECK(patient.receive() == "HTTP/1.1 100 Continue\r\n\r\n");
  patient.send(body);
  CHECK(patient.response().status == 200);
}

TEST_CASE("stopping lets answers finish, and cuts those that take too long") {
  FakeService::Script script;
  {
    Stand stand;
    script.tick = 50ms;
    stand.service.set(script);
    HttpClient idle = stand.client();
    CHECK(idle.get("/health").status == 200);
    HttpClient busy = stand.client();
    busy.send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 20})"));
    REQUIRE(stand.service.wait_running(1));
    stand.gateway->stop(10s);
    CHECK(busy.response().status == 200);
    CHECK(idle.closed_by_peer());
    CHECK_FALSE(stand.client().connected());
  }
  Stand stand;
  script.hold = true;
  stand.service.set(script);
  HttpClient busy = stand.client();
  busy.send(post_text("/v1/completions", R"({"prompt": "a"})"));
  REQUIRE(stand.service.wait_running(1));
  stand.gateway->stop(50ms);
  CHECK(stand.service.cancelled() == 1);
  CHECK(busy.closed_by_peer());
}

TEST_CASE("what cannot be listened on is a clear error") {
  Stand stand;
  const auto attempt = [&](GatewayOptions options) {
    auto gateway = Gateway::start(std::move(options), stand.service, stand.service, stand.cluster,
                                  stand.model, stand.metrics);
    return gateway.ok() ? std::string("started") : gateway.error().message;
  };
  GatewayOptions options;
  options.port = stand.gateway->port();
  CHECK(attempt(options).find("--port") != std::string::npos);
  options.host = "no-such-host.invalid";
  CHECK(attempt(options).find("no-such-host.invalid") != std::string::npos);
  options = {};
  options.port = 0;
  options.tls_cert = "/nonexistent.pem";
  CHECK(attempt(options).find("--tls-key") != std::string::npos);
  options.tls_key = "/nonexistent.pem";
  CHECK(attempt(options).find("/nonexistent.pem") != std::string::npos);
}

TEST_CASE("over TLS") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("troupe-gateway-tls-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  GatewayOptions options;
  options.tls_cert = folder / "cert.pem";
  options.tls_key = folder / "key.pem";
  const std::string make =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
      "/CN=localhost -out '" +
      options.tls_cert + "' -keyout '" + options.tls_key + "' 2>/dev/null";
  REQUIRE(std::system(make.c_str()) == 0);
  Stand stand(options);
  CHECK(stand.gateway->url().starts_with("https://"));
  {
    HttpClient client = stand.client(true);
    CHECK(client.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 2}})
              .json()["choices"][0]["text"] == "ab");
    HttpResponse streamed =
        client.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 3}, {"stream", true}});
    CHECK(text_of(streamed.events()) == "abc");
  }
  // The end of an answer without a length is the end that TLS has, not that of the socket.
  {
    HttpClient client = stand.client(true);
    const std::string body = R"({"prompt": "a", "max_tokens": 3, "stream": true})";
    client.send(
        "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body);
    CHECK(text_of(client.response().events()) == "abc");
    CHECK(client.ended_in_order());
  }
  HttpClient refused = stand.client(true);
  refused.send("nonsense\r\n\r\n");
  CHECK(refused.response().status == 400);
  CHECK(refused.closed_by_peer());
  CHECK(refused.ended_in_order());
  HttpClient plain = stand.client();
  plain.send("GET /health HTTP/1.1\r\n\r\n");
  CHECK(plain.closed_by_peer());

  FakeService::Script script;
  script.tick = 5ms;
  stand.service.set(script);
  {
    HttpClient client = stand.client(true);
    client.send(
        post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 100000, "stream": true})"));
    CHECK_FALSE(client.receive().empty());
  }
  CHECK(stand.service.wait_running(0));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace troupe::testing
