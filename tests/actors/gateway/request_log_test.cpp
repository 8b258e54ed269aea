#include "actors/gateway/request_log.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

ServedRequest chat() {
  ServedRequest request;
  request.head.method = "POST";
  request.head.path = "/v1/chat/completions";
  request.route = Route::kChat;
  request.began = TimePoint{} + 1s;
  request.status = 200;
  request.complete = true;
  return request;
}

std::string line_of(const ServedRequest& request) {
  return RequestLog().line_of(request, TimePoint{} + 2500ms).value();
}

}  // namespace

TEST_CASE("a request's line says how it went, and never what was asked") {
  ServedRequest request = chat();
  CHECK(line_of(request) == "POST /v1/chat/completions 200 after 1.500 s");
  request.head.query = "prompt=secret";
  request.head.authorization = "Bearer secret";
  request.head.idempotency_keys = {"secret"};
  request.id = "chatcmpl-1";
  request.prompt_tokens = 12;
  request.completion_tokens = 5;
  CHECK(line_of(request) ==
        "POST /v1/chat/completions 200 after 1.500 s, 12 tokens in, 5 out, chatcmpl-1");
  request.head.request_ids = {"mine 1"};
  CHECK(line_of(request).ends_with(", chatcmpl-1, X-Request-Id mine?1"));
  request.head.request_ids = {"one", "two"};
  CHECK(line_of(request).ends_with(", chatcmpl-1"));
}

TEST_CASE("a request's line says how it broke off") {
  ServedRequest request = chat();
  request.late_error = 503;
  CHECK(line_of(request) == "POST /v1/chat/completions 200, then an error 503 after 1.500 s");
  request.late_error = 0;
  request.complete = false;
  CHECK(line_of(request) == "POST /v1/chat/completions 200, the client left after 1.500 s");
  request.status = 0;
  CHECK(line_of(request) == "POST /v1/chat/completions no answer, the client left after 1.500 s");
  request.cut_off = "cut off, for its client did not read in time,";
  CHECK(line_of(request) ==
        "POST /v1/chat/completions no answer, cut off, for its client did not read in time, "
        "after 1.500 s");
}

TEST_CASE("a request's line is one line, and not a long one") {
  ServedRequest request = chat();
  request.head.path = "/a\nb\x1b[31m" + std::string(1000, 'x');
  const std::string line = line_of(request);
  CHECK(line.starts_with("POST /a?b?[31mxxx"));
  CHECK(line.size() < 200);
}

TEST_CASE("a flood of requests does not flood the log") {
  RequestLog log;
  std::size_t lines = 0;
  constexpr std::size_t kAll = kRequestLinesPerSecondMax + 7;
  for (std::size_t i = 0; i < kAll; ++i)
    lines += log.line_of(chat(), TimePoint{} + 2s).has_value() ? 1 : 0;
  CHECK(lines == kRequestLinesPerSecondMax);
  CHECK(log.line_of(chat(), TimePoint{} + 3s).value().ends_with(
      "(7 requests before it are not shown)"));
  CHECK(log.line_of(chat(), TimePoint{} + 3s).value().ends_with("s"));
}

TEST_CASE("probes and who looks on are told apart from those who ask") {
  ServedRequest request = chat();
  CHECK(!request.looks_on());
  request.route = Route::kHealth;
  CHECK(request.looks_on());
  request.route = {};
  CHECK(!request.looks_on());
}
