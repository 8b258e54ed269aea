#pragma once

#include <csignal>
#include <optional>

#include "runtime/clock.h"

namespace troupe::cli {

/// Takes the signals that end a process, its children's ends, and a nudge from its own threads as
/// events. Make it in main's thread before any other thread starts, so that all inherit the mask.
class Signals {
 public:
  Signals();
  /// SIGTERM, SIGINT, SIGCHLD or SIGUSR1 (the nudge); none when `patience` passed first.
  std::optional<int> wait(std::optional<Duration> patience) const;
  /// Wakes wait() with SIGUSR1. Any thread.
  static void nudge();

 private:
  sigset_t set_;
};

}  // namespace troupe::cli
