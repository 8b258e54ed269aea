#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace troupe::cli {

class LineEditor;

/// Lines of the standard input, as somebody types them or a pipe brings them. Not thread-safe.
class QuestionReader {
 public:
  /// `signals` is a signalfd of SIGINT and SIGTERM; `prompts`: somebody at a terminal types.
  QuestionReader(int signals, std::size_t bytes_max, bool prompts);
  ~QuestionReader();

  enum class News : unsigned char {
    kLine,
    kEnd,          ///< of the input
    kInterrupted,  ///< Ctrl-C
    kTerminated,
    kTooLong,  ///< nothing more is read
  };
  /// Waits for the next, without the end of its line. `prompt` is for who types.
  News next(const std::string& prompt, std::string& line);

 private:
  News next_read(std::string& line);
  bool take_line(std::string& line);

  const int signals_;
  const std::size_t bytes_max_;
  const bool prompts_;
  const std::unique_ptr<LineEditor> editor_;  // Null: the lines come as they are.
  std::string read_;  // What was read and is no whole line yet, or several.
  bool ended_ = false;
};

/// The signal that has come, or 0.
int take_signal(int signals);

}  // namespace troupe::cli
