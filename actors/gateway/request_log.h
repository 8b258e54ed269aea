#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "actors/gateway/api.h"
#include "runtime/clock.h"

namespace troupe {

/// What is said of an HTTP request in the log, once it is over. Never what was asked or answered.
struct ServedRequest {
  HttpHead head;
  std::optional<Route> route = {};  ///< none: it was turned away
  TimePoint began;
  int status = 0;                 ///< 0: no answer was begun
  int late_error = 0;             ///< of a stream that had begun; 0: none
  bool complete = false;          ///< all of the answer was sent
  const char* cut_off = nullptr;  ///< why it was, if it was not its client that left
  std::string id = {};            ///< by which it is found again; empty: it is not
  std::uint64_t prompt_tokens = 0, completion_tokens = 0;

  /// Whether it is one of those that come every second: probes, and who looks on.
  bool looks_on() const;
};

/// What a person can look through, and a terminal bears.
inline constexpr std::size_t kRequestLinesPerSecondMax = 100;

/// Makes a line of a request, and no more lines a second than that. Not thread-safe.
class RequestLog {
 public:
  /// None: there have been too many in this second. The next line says how many.
  std::optional<std::string> line_of(const ServedRequest& request, TimePoint now);

 private:
  TimePoint second_{};     ///< began then
  std::size_t lines_ = 0;  ///< within it
  std::size_t left_out_ = 0;
};

}  // namespace troupe
