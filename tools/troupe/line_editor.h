#pragma once

#include <memory>
#include <string>

#include "tools/troupe/question_reader.h"

namespace troupe::cli {

/// Lines that somebody types at a terminal, with keys that edit and a history, by libedit and its
/// ~/.editrc. One at a time, for one thread.
class LineEditor {
 public:
  /// Before open(), and before other threads are started: it sets the locale, and keeps from them
  /// what only the editor wants to hear of, its terminal's new size and that it goes on after a
  /// Ctrl-Z.
  static void prepare();
  /// `signals` is a signalfd of SIGINT and SIGTERM. Null: the terminal cannot move its cursor.
  static std::unique_ptr<LineEditor> open(int signals);
  ~LineEditor();

  /// Waits for the next, without the end of its line.
  QuestionReader::News next(const std::string& prompt, std::string& line);

 private:
  struct Impl;
  explicit LineEditor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::cli
