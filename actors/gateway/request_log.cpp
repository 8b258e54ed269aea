#include "actors/gateway/request_log.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "runtime/counted.h"

namespace troupe {
namespace {

constexpr std::size_t kPathBytesMax = 128;

/// As far as it can stand in a line.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, kPathBytesMax));
  std::ranges::replace_if(out, [](char c) { return c <= ' ' || c > '~'; }, '?');
  return text.size() > kPathBytesMax ? out + "..." : out;
}

std::string seconds_text(Duration took) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", std::chrono::duration<double>(took).count());
  return text;
}

}  // namespace

bool ServedRequest::looks_on() const {
  if (!route) return false;
  switch (*route) {
    case Route::kHealth:
    case Route::kMetrics:
    case Route::kStatus:
    case Route::kHistory:
    case Route::kVersion:
    case Route::kConsole:
    case Route::kPreflight:
      return true;
    default:
      return false;
  }
}

std::optional<std::string> RequestLog::line_of(const ServedRequest& request, TimePoint now) {
  if (now - second_ >= std::chrono::seconds(1)) {
    second_ = now;
    lines_ = 0;
  }
  if (lines_ == kRequestLinesPerSecondMax) {
    ++left_out_;
    return std::nullopt;
  }
  ++lines_;
  std::string line = shown(request.head.method) + " " + shown(request.head.path) + " " +
                     (request.status == 0 ? "no answer" : std::to_string(request.status));
  if (request.late_error != 0) line += ", then an error " + std::to_string(request.late_error);
  if (!request.complete)
    line += std::string(", ") + (request.cut_off ? request.cut_off : "the client left");
  line += " after " + seconds_text(now - request.began);
  if (request.prompt_tokens + request.completion_tokens > 0)
    line += ", " + counted(request.prompt_tokens, "token") + " in, " +
            std::to_string(request.completion_tokens) + " out";
  if (!request.id.empty()) line += ", " + request.id;
  if (Api::names_itself(request.head))
    line += ", X-Request-Id " + shown(request.head.request_ids.front());
  if (left_out_ > 0) line += " (" + counted(left_out_, "request") + " before it are not shown)";
  left_out_ = 0;
  return line;
}

}  // namespace troupe
