#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

/// The gateway still answers.
void check_alive(const Stand& stand) {
  CHECK(stand.client().post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}}).status == 200);
}

TEST_CASE("slow headers and bodies end at their deadline") {
  GatewayOptions options;
  options.deadlines.header = 1s;
  options.deadlines.body = 1s;
  options.deadlines.idle = 1s;
  Stand stand(std::move(options));
  HttpClient header = stand.client();
  header.send("GET /health HTT");
  CHECK(header.response().status == 408);
  CHECK(header.closed_by_peer());
  HttpClient body = stand.client();
  body.send(kPostCompletion + "Content-Length: 100\r\n\r\n{");
  CHECK(body.response().status == 408);
  HttpClient trickle = stand.client();
  std::thread drip([&] {
    while (trickle.send("X: y\r\n")) std::this_thread::sleep_for(10ms);
  });
  CHECK(HttpClient(stand.gateway->port()).closed_by_peer());  // Idle.
  CHECK(trickle.closed_by_peer());
  drip.join();
  check_alive(stand);
}

TEST_CASE("a body over the limit is refused before it is read") {
  Stand stand;
  HttpClient declared = stand.client();
  declared.send(kPostCompletion + "Content-Length: 104857600\r\n\r\n");
  HttpResponse answer = declared.response();
  CHECK(answer.status == 413);
  CHECK(answer.json()["error"]["code"] == "body_too_large");

  GatewayOptions options;
  options.body_bytes_max = 1u << 20;
  Stand small(std::move(options));
  HttpClient sender = small.client();
  const std::string mebibyte(1u << 20, ' ');
  sender.send(kPostCompletion + "Transfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 100 && sender.send("100000\r\n" + mebibyte + "\r\n"); ++i) {
  }
  CHECK(sender.response().status == 413);
  check_alive(small);

  options = {};
  options.bodies_bytes_max = 1000;
  Stand crowded(std::move(options));
  CHECK(crowded.client().post_text("/v1/completions", std::string(2000, ' ')).status == 503);
  check_alive(crowded);  // What it took was given back.
}

TEST_CASE("bytes that are not HTTP") {
  Stand stand;
  const std::string cases[] = {
      "\r\n\r\n\r\n",
      "GET\r\n\r\n",
      "GET /health HTTP/9.9\r\n\r\n",
      "GET /health HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
      "Transfer-Encoding: chunked\r\n\r\n",
      kPostCompletion + "Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
      kPostCompletion + "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
      "GET /health HTTP/1.1\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
      "GET /v1/models/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET /v1/models/%4 HTTP/1.1\r\nHost: localhost\r\n\r\n",
      std::string("GET /\0health HTTP/1.1\r\nHost: localhost\r\n\r\n", 42),
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
      "GET /health HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n",
  };
  for (const std::string& bytes : cases) {
    CAPTURE(bytes.substr(0, 60));
    HttpClient client = stand.client();
    client.send(bytes + "\r\n\r\n");
    const int status = client.response().status;
    CHECK_MESSAGE((status == 400 || status == 413 || status == 431), status);
  }
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    HttpClient client = stand.client();
    std::string bytes(random() % 2000 + 1, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    client.send(bytes);
  }
  const std::string good = post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 1})");
  for (int i = 0; i < 300; ++i) {  // Good requests with one byte changed, and cut off somewhere.
    HttpClient client = stand.client();
    std::string bytes = good.substr(0, random() % good.size() + 1);
    bytes[random() % bytes.size()] = static_cast<char>(random());
    client.send(bytes);
  }
  check_alive(stand);
  CHECK(stand.service.wait_running(0));
}

TEST_CASE("10,000 levels of nesting are refused at once") {
  Stand stand;
  const std::string body = "{\"prompt\":" + std::string(10'000, '[');
  HttpResponse answer = stand.client().post_text("/v1/completions", body);
  CHECK(answer.status == 400);
  CHECK(answer.json()["error"]["message"].get<std::string>().find("nested") != std::string::npos);
}

TEST_CASE("large prompts do not hold up small ones") {
  std::promise<void> go_on;
  ByteModel model;
  model.large_go_on = go_on.get_future().share();
  Stand stand({}, model);
  const std::string large = json{{"prompt", std::string(300'000, 'a')}}.dump();
  std::vector<HttpClient> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(stand.client());
    REQUIRE(clients.back().send(post_text("/tokenize", large)));
  }
  for (int i = 0; i < 8; ++i)
    CHECK(stand.client().post("/tokenize", {{"prompt", "a"}}).json()["count"] == 2);
  go_on.set_value();
  for (HttpClient& client : clients) CHECK(client.response().json()["count"] == 300'001);
}

TEST_CASE("a reader that does not read is cut off and its request cancelled") {
  GatewayOptions options;
  SUBCASE("because too much is unsent") { options.unsent_bytes_max = 64u << 10; }
  SUBCASE("because it takes too long") { options.deadlines.write = 200ms; }
  Stand stand(std::move(options));
  FakeService::Script script;
  script.tick = 10us;
  stand.service.set(script);
  HttpClient client = stand.client();
  client.send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 4000000000,
                        "stream": true, "logprobs": 20})"));
  REQUIRE(stand.service.wait_running(1));
  CHECK(stand.service.wait_running(0));
  CHECK(stand.service.cancelled() == 1);
  check_alive(stand);
}

TEST_CASE("1,000 streams at once, each complete") {
  Stand stand;
  FakeService::Script script;
  script.hold = false;
  script.tick = 2ms;
  stand.service.set(script);
  std::vector<HttpClient> clients;
  const json body{{"prompt", "a"}, {"max_tokens", 30}, {"stream", true}};
  const std::string request = post_text("/v1/completions", body.dump());
  for (int i = 0; i < 1000; ++i) clients.push_back(stand.client());
  for (HttpClient& client : clients) REQUIRE(client.send(request));
  for (HttpClient& client : clients) {
    HttpResponse answer = client.response();
    REQUIRE(answer.status == 200);
    const std::vector<std::string> events = answer.events();
    std::string text;
    for (const std::string& event : events) {
      if (event != "[DONE]") text += json::parse(event)["choices"][0]["text"].get<std::string>();
    }
    CHECK(text == "abcdefghijklmnopqrstuvwxyzabcd");
    CHECK(events.back() == "[DONE]");
  }
  CHECK(stand.service.running() == 0);
}

TEST_CASE("idle connections by the thousand keep nobody out") {
  Stand stand;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  // Both ends are in this process.
  const std::size_t count = std::min<std::size_t>(10'000, (files.rlim_cur - 1000) / 2);
  std::vector<HttpClient> idle;
  for (std::size_t i = 0; i < count; ++i) {
    idle.push_back(stand.client());
    REQUIRE(idle.back().connected());
  }
  check_alive(stand);
  CHECK(idle.front().get("/health").status == 200);
}

TEST_CASE("connections over the limit are told so, and there is room again when others leave") {
  GatewayOptions options;
  options.connections_max = 10;
  Stand stand(std::move(options));
  {
    std::vector<HttpClient> clients;
    for (int i = 0; i < 10; ++i) {
      clients.push_back(stand.client());
      CHECK(clients.back().get("/health").status == 200);
    }
    for (int i = 0; i < 5; ++i) {
      HttpClient late = stand.client();
      HttpResponse answer = late.get("/health");
      CHECK(answer.status == 503);
      CHECK(answer.headers.contains("retry-after"));
      CHECK(late.closed_by_peer());
    }
    std::vector<HttpClient> flood;
    for (int i = 0; i < 500; ++i) flood.push_back(stand.client());
    CHECK(clients.front().get("/health").status == 200);
  }
  int status = 0;
  for (int i = 0; i < 200 && status != 200; ++i) status = stand.client().get("/health").status;
  CHECK(status == 200);
}

TEST_CASE("clients that leave at any moment leave nothing behind") {
  Stand stand;
  FakeService::Script script;
  script.tick = 200us;
  stand.service.set(script);
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    HttpClient client = stand.client();
    const json body{{"prompt", {"a", "b"}}, {"max_tokens", 50}, {"stream", i % 2 == 0}};
    client.send(post_text("/v1/completions", body.dump()));
    if (random() % 2 == 0) client.receive();
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
  }
  CHECK(stand.service.wait_running(0));
  check_alive(stand);
}

}  // namespace
}  // namespace troupe::testing
