// What a request has beside its body, and what bodies take of the memory for all.
#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

const std::string kChunked = kPostCompletion + "Transfer-Encoding: chunked\r\n\r\n";

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST_CASE("lines that are no body are bounded, one by one and together") {
  GatewayOptions options;
  options.header_bytes_max = 4096;
  Stand stand(std::move(options));
  const std::string chunk = "1;a=" + std::string(1000, 'b') + "\r\n \r\n";
  const std::string field = "X: " + std::string(100, 'y') + "\r\n";
  const std::string cases[] = {
      kChunked + "1;a=" + std::string(20'000, 'b'),
      kChunked + std::string(20'000, '0'),
      kChunked + "2\r\n{}\r\n1;a=" + std::string(20'000, 'b'),
      kChunked + "0;a=" + std::string(20'000, 'b'),
      kChunked + "0\r\nX: " + std::string(20'000, 'y'),
      kChunked + "2\r\n{}\r\n0\r\n" + repeated(field, 200),
      kChunked + repeated(chunk, 100),
      "GET /health HTTP/1.1\r\n" + repeated(field, 200),
      "GET /health HTTP/1.1\r\nHost: localhost\r\n" + repeated("a:\r\n", 1000),
      "GET /" + std::string(20'000, 'a'),
  };
  for (const std::string& bytes : cases) {
    CAPTURE(bytes.substr(0, 200));
    HttpClient client = stand.client();
    client.send(bytes);
    HttpResponse answer = client.response();
    CHECK(answer.status == 431);
    CHECK(answer.json()["error"]["code"] == "header_too_large");
    CHECK(client.closed_by_peer());
  }
  // Fields that arrive one by one, so that none of them has to wait for its end.
  HttpClient client = stand.client();
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n");
  std::thread drip([&] {
    for (int i = 0; i < 200 && client.send(field); ++i) std::this_thread::sleep_for(1ms);
  });
  CHECK(client.response().status == 431);
  drip.join();
  CHECK(stand.client().get("/health").status == 200);
}

TEST_CASE("fair extensions, trailers and small chunks are no fault") {
  GatewayOptions options;
  options.header_bytes_max = 4096;
  Stand stand(std::move(options));
  const std::string body = R"({"prompt": "a", "max_tokens": 2})";
  std::string bytes = kChunked;
  for (const char c : std::string(20'000, ' ') + body)  // Each with ten digits for its size.
    bytes += "0000000001\r\n" + std::string(1, c) + "\r\n";
  bytes += "0\r\n\r\n";
  const std::string with_more = kChunked + "20;name=\"some value\"\r\n" + body +
                                "\r\n00000;last\r\nX-Checksum: 1\r\nHost: elsewhere\r\n\r\n";
  REQUIRE(body.size() == 0x20);
  HttpClient client = stand.client();
  for (const std::string& request : {bytes, with_more, bytes + with_more}) {
    REQUIRE(client.send(request));
    CHECK(client.response().json()["choices"][0]["text"] == "ab");
  }
  CHECK(client.response().json()["choices"][0]["text"] == "ab");
}

TEST_CASE("a body gives back its share when it is read, not when it is answered") {
  GatewayOptions options;
  options.bodies_bytes_max = 1u << 20;
  Stand stand(std::move(options));
  FakeService::Script script;
  script.hold = true;
  stand.service.set(script);
  std::vector<HttpClient> clients;
  const std::string padded = std::string(300'000, ' ') + R"({"prompt": "a", "stream": )";
  for (std::size_t i = 0; i < 6; ++i) {
    clients.push_back(stand.client());
    REQUIRE(clients.back().send(
        post_text("/v1/completions", padded + (i % 2 == 0 ? "true}" : "false}"))));
    REQUIRE(stand.service.wait_running(i + 1));
  }
  CHECK(stand.client()
            .post_text("/tokenize", std::string(300'000, ' ') + R"({"prompt": "a"})")
            .status == 200);
}

TEST_CASE("large bodies that do not end leave room for small ones") {
  GatewayOptions options;
  options.bodies_bytes_max = 4u << 20;
  Stand stand(std::move(options));
  HttpClient slow = stand.client();
  slow.send(kPostCompletion + "Content-Length: 30000000\r\n\r\n" + std::string(3'400'000, ' '));
  const std::string large = std::string(600'000, ' ') + R"({"prompt": "a"})";
  const auto patience = std::chrono::steady_clock::now() + 60s;
  int status = 0;  // Until the server has read what it was sent.
  while (status != 503 && std::chrono::steady_clock::now() < patience)
    status = stand.client().post_text("/tokenize", large).status;
  CHECK(status == 503);
  const std::string small = std::string(200'000, ' ') + R"({"prompt": "a"})";
  CHECK(stand.client().post_text("/tokenize", small).status == 200);
}

TEST_CASE("a body that is said to be compressed is refused, before it is read") {
  Stand stand;
  struct Case {
    const char* fields;
    int status;
  };
  const Case cases[] = {
      {"", 200},
      {"Content-Encoding: identity\r\n", 200},
      {"content-encoding: IDENTITY , identity\r\n", 200},
      {"Content-Encoding: \r\n", 200},
      {"Content-Encoding: gzip\r\n", 415},
      {"Content-Encoding: GZIP\r\n", 415},
      {"Content-Encoding: x-gzip\r\n", 415},
      {"Content-Encoding: deflate\r\n", 415},
      {"Content-Encoding: br\r\n", 415},
      {"Content-Encoding: zstd\r\n", 415},
      {"Content-Encoding: identity, gzip\r\n", 415},
      {"Content-Encoding: gzip, gzip\r\n", 415},
      {"Content-Encoding: identity\r\nContent-Encoding: gzip\r\n", 415},
      {"Content-Encoding: identity;q=1\r\n", 415},
      {"Content-Encoding: identit\r\n", 415},
      {"Content-Encoding: identityx\r\n", 415},
  };
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    for (const Case& c : cases) {
      CAPTURE(c.fields);
      HttpClient client = stand.client();
      HttpResponse answer = client.post_text(path, R"({"prompt": "a"})", c.fields);
      CHECK(answer.status == c.status);
      if (c.status == 200) continue;
      CHECK(answer.json()["error"]["code"] == "unsupported_content_encoding");
      CHECK(answer.headers["accept-encoding"] == "identity");
      HttpClient waits = stand.client();
      waits.send("POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
                 "application/json\r\nExpect: 100-continue\r\nContent-Length: 99\r\n" + c.fields +
                 "\r\n");
      CHECK(waits.response().status == 415);
    }
  }
  CHECK(stand.client().get("/health", "Content-Encoding: gzip\r\n").status == 200);
}

}  // namespace
}  // namespace troupe::testing
