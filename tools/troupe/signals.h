#pragma once

#include <atomic>
#include <csignal>
#include <optional>
#include <thread>

#include "runtime/clock.h"

namespace troupe::cli {

/// Takes the signals that end a process, its children's ends, and a nudge from its own threads as
/// events. main() makes the first one before anything else, so that no moment is without it and all
/// threads inherit the mask.
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

/// For a command that waits for one answer: while it lives, SIGTERM and Ctrl-C end the process with
/// exit code 0. Nothing outside of the process has to be ended in order.
class EndOnSignal {
 public:
  EndOnSignal();
  ~EndOnSignal();

 private:
  const Signals signals_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace troupe::cli
