#pragma once

#include <cstddef>
#include <string>

namespace troupe::cli {

/// Lines of the standard input, as somebody types them or a pipe brings them. Not thread-safe.
class QuestionReader {
 public:
  /// `signals` is a signalfd of SIGINT and SIGTERM.
  QuestionReader(int signals, std::size_t bytes_max) : signals_(signals), bytes_max_(bytes_max) {}

  enum class News : unsigned char {
    kLine,
    kEnd,          ///< of the input
    kInterrupted,  ///< Ctrl-C
    kTerminated,
    kTooLong,  ///< nothing more is read
  };
  /// Waits for the next, without the end of its line.
  News next(std::string& line);

 private:
  bool take_line(std::string& line);

  const int signals_;
  const std::size_t bytes_max_;
  std::string read_;  // What was read and is no whole line yet, or several.
  bool ended_ = false;
};

/// The signal that has come, or 0.
int take_signal(int signals);

}  // namespace troupe::cli
