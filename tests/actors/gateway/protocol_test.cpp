// HTTP as RFC 9112 has it, where clients and proxies differ.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr const char* kHost = "Host: localhost\r\n";

TEST_CASE("a body whose end another server might see elsewhere is refused, and what follows too") {
  Stand stand;
  const std::string smuggled = "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (const char* coding :
       {"Transfer-Encoding: xchunked\r\n", "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity\r\n", "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n", "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked;q=1\r\n"}) {
    CAPTURE(coding);
    HttpClient client = stand.client();
    client.send(kPostCompletion + coding + "\r\n" + smuggled);
    CHECK(client.response().status == 400);
    CHECK(client.response().status == 0);  // No second answer.
    CHECK(client.closed_by_peer());
  }
  HttpClient old = stand.client();
  old.send(
      "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n");
  CHECK(old.response().status == 400);
  HttpClient good = stand.client();
  good.send(kPostCompletion + "Transfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n");
  CHECK(good.response().json()["error"]["param"] == "prompt");
}

TEST_CASE("paths are percent-decoded") {
  Stand stand;
  HttpClient client = stand.client();
  CHECK(client.get("/v1/models/%62yte%73").status == 200);
  CHECK(client.get("/v1%2Fmodels").status == 200);
  CHECK(client.get("/v1/models/org%2Fname").json()["error"]["message"] ==
        "The model 'org/name' does not exist.");
  CHECK(client.get("/v1/models/bytes%00").status == 404);
  CHECK(client.get("/v1/models/bytes?x=%zz").status == 200);
}

TEST_CASE("absolute targets and a blank line before a request") {
  Stand stand;
  HttpClient client = stand.client();
  for (const char* target : {"http://localhost/health", "HTTP://127.0.0.1:8000/health?x",
                             "https://localhost/health", "http://localhost"}) {
    CAPTURE(target);
    client.send(std::string("\r\nGET ") + target + " HTTP/1.1\r\n" + kHost + "\r\n");
    CHECK(client.response().status == 200);
  }
  client.send("\r\n");  // It may come alone, and in halves.
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n\r");
  CHECK(client.response().status == 200);
  client.send("\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(client.response().status == 200);
}

TEST_CASE("a client that sends no more still gets its answers") {
  Stand stand;
  FakeService::Script script;
  script.tick = 20ms;
  stand.service.set(script);
  for (const bool stream : {false, true}) {
    for (const char* version : {"1.0", "1.1"}) {
      CAPTURE(stream);
      CAPTURE(version);
      HttpClient client = stand.client();
      const json body{{"prompt", "a"}, {"max_tokens", 10}, {"stream", stream}};
      const std::string text = body.dump();
      client.send("POST /v1/completions HTTP/" + std::string(version) +
                  "\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
                  std::to_string(text.size()) + "\r\n\r\n" + text);
      client.half_close();
      HttpResponse answer = client.response();
      CHECK(answer.status == 200);
      CHECK(answer.body.find(stream ? "[DONE]" : "abcdefghij") != std::string::npos);
      CHECK(client.closed_by_peer());
    }
  }
  HttpClient two = stand.client();
  const std::string one = post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 2})");
  two.send(one + one);
  two.half_close();
  CHECK(two.response().status == 200);
  CHECK(two.response().status == 200);
  CHECK(stand.service.cancelled() == 0);
}

TEST_CASE("an answer of many pieces is whole, and its memory is given back") {
  Stand stand;
  const json body{{"prompt", "pq"}, {"n", 8},       {"max_tokens", 1500},
                  {"logprobs", 20}, {"echo", true}, {"return_token_ids", true}};
  HttpClient client = stand.client();
  HttpResponse answer = client.post("/v1/completions", body);
  REQUIRE(answer.status == 200);
  CHECK(answer.headers["transfer-encoding"] == "chunked");
  CHECK(answer.body.size() > 4 * limits::kHttpPieceBytes);
  const json whole = answer.json();
  REQUIRE(whole["choices"].size() == 8);
  for (const json& choice : whole["choices"]) {
    CHECK(choice["text"].get<std::string>().size() == 1502);
    const json& logprobs = choice["logprobs"];
    for (const char* list : {"text_offset", "token_logprobs", "tokens", "top_logprobs"})
      CHECK(logprobs[list].size() == 1503);
    CHECK(logprobs["text_offset"][1502] == 1501);
    CHECK(logprobs["top_logprobs"][3].size() == 20);
    CHECK(choice["token_ids"].size() == 1500);
  }
  CHECK(client.get("/health").status == 200);  // The connection goes on.

  json chat{{"messages", {{{"role", "user"}, {"content", "a"}}}},
            {"n", 4},
            {"max_tokens", 400},
            {"logprobs", true},
            {"top_logprobs", 20}};
  answer = client.post("/v1/chat/completions", chat);
  REQUIRE(answer.status == 200);
  const json chats = answer.json();
  REQUIRE(chats["choices"].size() == 4);
  for (const json& choice : chats["choices"]) {
    CHECK(choice["message"]["content"].get<std::string>().size() == 400);
    CHECK(choice["logprobs"]["content"].size() == 400);
    CHECK(choice["logprobs"]["content"][399]["top_logprobs"].size() == 20);
  }
  // HTTP/1.0 knows no chunks: it ends with the connection.
  const std::string text = body.dump();
  HttpClient old = stand.client();
  old.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(text.size()) + "\r\n\r\n" + text);
  answer = old.response();
  CHECK(answer.status == 200);
  CHECK(answer.json()["choices"].size() == 8);
}

TEST_CASE("sockets are not left to programs that this one starts") {
  Stand stand;
  HttpClient client = stand.client();
  CHECK(client.get("/health").status == 200);
  std::size_t sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!what.starts_with("socket:")) continue;
    ++sockets;
    const int fd = std::stoi(entry.path().filename().string());
    CHECK_MESSAGE((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0, what);
  }
  CHECK(sockets >= 3);  // The listener, and both ends of the connection.
}

}  // namespace
}  // namespace troupe::testing
