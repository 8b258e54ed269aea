#pragma once

#include <memory>
#include <vector>

#include "runtime/result.h"
#include "tools/troupe/console/canvas.h"
#include "tools/troupe/console/ui.h"

namespace troupe::cli {

/// The terminal as a grid of cells, through curses. While it lives the screen is ours; the
/// destructor, or a crash, gives it back as it was. One at a time, for one thread.
class Terminal {
 public:
  /// kUnavailable if standard output is no terminal, or one that curses does not know.
  static Result<std::unique_ptr<Terminal>> open();
  ~Terminal();

  int width() const;
  int height() const;
  bool unicode() const;
  /// The size may have changed: asks again, and draws everything with the next show().
  void resize();
  /// Draws what differs from what is there.
  void show(const console::Canvas& canvas);
  /// Keys that have been pressed, without waiting. `gone`: the terminal is no longer there.
  std::vector<console::Key> keys(bool& gone);
  /// Stops the process as Ctrl-Z should, with the terminal as it was; returns when it goes on.
  void suspend();

 private:
  struct Impl;
  explicit Terminal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::cli
