// Streams that have no news for a while.
#include <doctest/doctest.h>

#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr const char* kComment = ": waiting\n\n";

/// Of streams that hardly wait before they say that they do.
GatewayOptions talkative() {
  GatewayOptions options;
  options.silence = {.head_after = 1ms, .comment_every = 1ms};
  return options;
}

/// Appends what comes until `end` is in it; whether that came.
bool receive_until(HttpClient& client, std::string_view end, std::string& all) {
  while (all.find(end) == std::string::npos) {
    const std::string more = client.receive();
    if (more.empty()) return false;
    all += more;
  }
  return true;
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST_CASE("a stream that waits says so, and then its answer") {
  Stand stand(talkative());
  FakeService::Script script;
  script.text = "abc";
  const auto request = [](const char* path, json body, const char* version) {
    body["stream"] = true;
    std::string text = post_text(path, body.dump());
    return text.replace(text.find("HTTP/1.1"), 8, version);
  };
  const json chat{{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  const std::string requests[] = {
      request("/v1/completions", {{"prompt", "a"}, {"max_tokens", 3}}, "HTTP/1.1"),
      request("/v1/completions", {{"prompt", {"a", "b"}}, {"max_tokens", 3}}, "HTTP/1.0"),
      request("/v1/chat/completions", chat, "HTTP/1.1"),
      request("/v1/responses", {{"input", "a"}}, "HTTP/1.1"),
  };
  for (const std::string& bytes : requests) {
    for (const std::uint32_t wait_at : {0u, 2u}) {
      for (const bool sends_more : {true, false}) {
        CAPTURE(bytes);
        CAPTURE(wait_at);
        CAPTURE(sends_more);
        script.wait_at = wait_at;
        stand.service.set(script);
        HttpClient client = stand.client();
        client.send(bytes);
        if (!sends_more) client.half_close();
        std::string all;
        if (wait_at > 0) REQUIRE(receive_until(client, "data: ", all));
        REQUIRE(receive_until(client, kComment, all));
        CHECK(all.starts_with("HTTP/1.1 200 OK\r\n"));
        CHECK(count(all, "HTTP/1.1") == 1);
        CHECK(count(all, "X-Request-Id: ") == 1);
        if (wait_at == 0) CHECK(count(all, "data: ") == 0);
        all.clear();
        REQUIRE(receive_until(client, kComment, all));  // And again.
        stand.service.go_on();
        const bool response = bytes.find("/responses") != std::string::npos;
        CHECK(receive_until(client, response ? "response.completed" : "[DONE]", all));
        CHECK(stand.service.wait_running(0));
      }
    }
  }
  CHECK(stand.service.cancelled() == 0);
}

TEST_CASE("an earlier request's stream waits in the same way") {
  Stand stand(talkative());
  FakeService::Script script;
  script.text = "abc";
  script.wait_at = 0;
  stand.service.set(script);
  HttpClient asks = stand.client();
  asks.send(post_text("/v1/completions", R"({"prompt": "a", "stream": true})"));
  std::string all;
  REQUIRE(receive_until(asks, kComment, all));
  const std::size_t at = all.find("X-Request-Id: ") + 14;
  HttpClient reads = stand.client();
  reads.send("GET /v1/requests/" + all.substr(at, all.find("\r\n", at) - at) +
             "/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  all.clear();
  REQUIRE(receive_until(reads, kComment, all));
  CHECK(all.starts_with("HTTP/1.1 200 OK\r\n"));
  stand.service.go_on();
  CHECK(receive_until(reads, "[DONE]", all));
  CHECK(count(all, "\"finish_reason\":\"") == 1);
}

TEST_CASE("an error after the head is an event, one before it a status") {
  Stand stand(talkative());
  FakeService::Script script;
  script.fail = resource_exhausted("Too much.");
  script.wait_to_fail = true;
  stand.service.set(script);
  const std::string request = post_text("/v1/completions", R"({"prompt": "a", "stream": true})");
  HttpClient late = stand.client();
  late.send(request);
  std::string all;
  REQUIRE(receive_until(late, kComment, all));
  stand.service.go_on();
  CHECK(receive_until(late, "[DONE]", all));
  CHECK(all.find("data: {\"error\":{\"message\":\"Too much.\"") != std::string::npos);

  // Of what is not on storage yet nothing is told, however long it waits.
  script.kept = false;
  stand.service.set(script);
  HttpClient unkept = stand.client();
  unkept.send(request);
  REQUIRE(stand.service.wait_asked(3));
  stand.service.go_on();
  CHECK(unkept.response().status == 429);
}

TEST_CASE("who leaves while it waits is noticed") {
  Stand stand(talkative());
  FakeService::Script script;
  script.hold = true;
  stand.service.set(script);
  for (const bool sends_more : {true, false}) {
    HttpClient client = stand.client();
    client.send(post_text("/v1/completions", R"({"prompt": "a", "stream": true})"));
    if (!sends_more) client.half_close();
    std::string all;
    REQUIRE(receive_until(client, kComment, all));
    { const HttpClient gone = std::move(client); }
    CHECK(stand.service.wait_running(0));
  }
}

}  // namespace
}  // namespace troupe::testing
