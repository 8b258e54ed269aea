#pragma once

#include <cstddef>
#include <string>

#include "runtime/clock.h"

namespace troupe {

/// For lines of the log that others can cause as often as they like: `kLinesMax` of them a minute
/// are written, and the first one after it says how many were not. Not thread-safe.
class LineLimit {
 public:
  static constexpr std::size_t kLinesMax = 30;

  void warn(const std::string& line, TimePoint now);
  /// What warn() writes; empty: nothing.
  std::string line_of(const std::string& line, TimePoint now);

 private:
  TimePoint since_{};
  std::size_t written_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace troupe
