// Who may ask: names of this server, pages of other sites, media types, keys.
#include <doctest/doctest.h>

#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

using nlohmann::json;

HttpResponse ask(const Stand& stand, const std::string& fields,
                 const std::string& line = "GET /health HTTP/1.1") {
  HttpClient client = stand.client();
  client.send(line + "\r\n" + fields + "\r\n");
  return client.response();
}

TEST_CASE("the server answers only to its own names") {
  GatewayOptions options;
  options.doors.sites.hosts = {"LLM.example.com"};
  Stand stand(options);
  for (const char* host :
       {"localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1", "127.0.0.1:1", "192.168.7.1:80",
        "[::1]", "[::1]:8000", "[fe80::1]:65535", "llm.example.com", "llm.EXAMPLE.com.:443"}) {
    CAPTURE(host);
    CHECK(ask(stand, std::string("Host: ") + host + "\r\n").status == 200);
  }
  char own[256] = {};
  REQUIRE(gethostname(own, sizeof own - 1) == 0);
  CHECK(ask(stand, std::string("Host: ") + own + ":8000\r\n").status == 200);
  for (const char* host : {"evil.example", "evil.example:8000", "localhost.evil.example",
                           "127.0.0.1.evil.example", "2130706433", "[::1", "[localhost]",
                           "localhost:80:80", "localhost:x", "", "example.com", "user@localhost"}) {
    CAPTURE(host);
    HttpResponse answer = ask(stand, std::string("Host: ") + host + "\r\n");
    CHECK(answer.status == 403);
    CHECK(answer.json()["error"]["message"].get<std::string>().find("--allowed-host") !=
          std::string::npos);
  }
  // An absolute target counts instead of Host.
  CHECK(ask(stand, "Host: localhost\r\n", "GET http://evil.example/health HTTP/1.1").status == 403);
  CHECK(ask(stand, "", "GET /health HTTP/1.0").status == 200);
}

TEST_CASE("pages of other sites are kept out") {
  Stand stand;
  const std::string host = "Host: 127.0.0.1:8000\r\n";
  for (const char* origin : {"http://evil.example", "http://127.0.0.1:8001", "http://127.0.0.1",
                             "http://localhost:8000", "null", "file://", "nonsense"}) {
    CAPTURE(origin);
    HttpResponse answer = ask(stand, host + "Origin: " + origin + "\r\n");
    CHECK(answer.status == 403);
    CHECK(answer.json()["error"]["message"].get<std::string>().find("--allowed-origin") !=
          std::string::npos);
    CHECK(answer.headers.count("access-control-allow-origin") == 0);
  }
  // The page of this server, also behind a proxy that speaks TLS.
  CHECK(ask(stand, host + "Origin: http://127.0.0.1:8000\r\n").status == 200);
  CHECK(ask(stand, "Host: localhost\r\nOrigin: https://localhost\r\n").status == 200);
  CHECK(ask(stand, "Host: localhost:443\r\nOrigin: https://localhost\r\n").status == 200);
}

TEST_CASE("pages of allowed sites read their answers") {
  GatewayOptions options;
  options.doors.api_keys = {"key"};
  options.doors.sites.origins = {"https://App.example"};
  Stand stand(options);
  const std::string fields = "Host: localhost\r\nOrigin: https://app.example\r\n";
  HttpResponse answer = ask(stand,
                            fields +
                                "Access-Control-Request-Method: POST\r\n"
                                "Access-Control-Request-Headers: authorization, x-extra\r\n",
                            "OPTIONS /v1/chat/completions HTTP/1.1");
  CHECK(answer.status == 200);
  CHECK(answer.headers["access-control-allow-origin"] == "https://app.example");
  CHECK(answer.headers["access-control-allow-headers"] == "authorization, x-extra");
  CHECK(answer.headers["access-control-allow-methods"].find("POST") != std::string::npos);
  CHECK(answer.headers["vary"] == "Origin");

  const std::string origin = "Authorization: Bearer key\r\nOrigin: https://app.example\r\n";
  for (const bool stream : {false, true}) {
    answer = stand.client().post("/v1/completions", {{"prompt", "a"}, {"stream", stream}}, origin);
    CHECK(answer.status == 200);
    CHECK(answer.headers["access-control-allow-origin"] == "https://app.example");
    CHECK(answer.headers["vary"] == "Origin");
  }
  // So that the page can tell what is wrong.
  answer = ask(stand, fields, "GET /v1/models HTTP/1.1");
  CHECK(answer.status == 401);
  CHECK(answer.headers["access-control-allow-origin"] == "https://app.example");
  CHECK(ask(stand, "Host: localhost\r\nOrigin: https://other.example\r\n").status == 403);
  CHECK(ask(stand, "Host: localhost\r\n").headers["vary"] == "Origin");

  options.doors.sites.origins = {"*"};
  Stand open(options);
  answer = ask(open, "Host: localhost\r\nOrigin: null\r\n");
  CHECK(answer.status == 200);
  CHECK(answer.headers["access-control-allow-origin"] == "null");
}

TEST_CASE("names and origins that cannot be meant are refused") {
  for (const char* host : {"", "http://a", "a:80", "a b"})
    CHECK_FALSE(SiteRules::check({.hosts = {host}, .origins = {}}).ok());
  for (const char* origin : {"", "a.example", "https://", "https://a.example/path", "://a"})
    CHECK_FALSE(SiteRules::check({.hosts = {}, .origins = {origin}}).ok());
  CHECK(SiteRules::check({.hosts = {"a.example"}, .origins = {"*", "null", "http://a:80"}}).ok());
}

TEST_CASE("bodies are JSON and say so") {
  Stand stand;
  const std::string body = R"({"prompt": "a", "max_tokens": 1})";
  const auto status = [&](const std::string& field) {
    HttpClient client = stand.client();
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + field +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.response().status;
  };
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8",
                           "application/json;charset=UTF-8", "application/json "})
    CHECK(status(std::string("Content-Type: ") + type + "\r\n") == 200);
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded",
                           "multipart/form-data; boundary=application/json", "application/jsonx",
                           "text/plain, application/json"})
    CHECK(status(std::string("Content-Type: ") + type + "\r\n") == 415);
  CHECK(status("") == 415);
}

TEST_CASE("metrics may be read without the key where that was asked for") {
  GatewayOptions options;
  options.doors.api_keys = {"key"};
  options.doors.metrics_without_key = true;
  Stand stand(options);
  CHECK(stand.client().get("/metrics").status == 200);
  CHECK(stand.client().get("/cluster/status").status == 401);
}

TEST_CASE("whoever is turned away before acceptance hears when to come again") {
  GatewayOptions crowded, full;
  crowded.bodies_bytes_max = 1000;
  full.answers.all_bytes_max = 1 << 10;
  Stand no_bodies(std::move(crowded)), no_answers(std::move(full));
  HttpResponse answer = no_bodies.client().post_text("/v1/completions", std::string(2000, ' '));
  CHECK(answer.status == 503);
  CHECK(answer.headers.contains("retry-after"));
  answer = no_answers.client().post("/v1/completions",
                                    {{"prompt", "a"}, {"logprobs", 20}, {"max_tokens", 100}});
  CHECK(answer.status == 429);
  CHECK(answer.headers.contains("retry-after"));
}

}  // namespace
}  // namespace troupe::testing
