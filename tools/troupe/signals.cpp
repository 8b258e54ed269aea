#include "tools/troupe/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace troupe::cli {

Signals::Signals() {
  sigemptyset(&set_);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD, SIGUSR1}) sigaddset(&set_, signal);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

std::optional<int> Signals::wait(std::optional<Duration> patience) const {
  while (true) {
    int signal = 0;
    if (patience) {
      const auto ns = std::max<std::int64_t>(0, patience->count());
      const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
      signal = sigtimedwait(&set_, nullptr, &time);
    } else {
      signal = sigwaitinfo(&set_, nullptr);
    }
    if (signal > 0) return signal;
    if (errno == EAGAIN) return std::nullopt;
  }
}

void Signals::nudge() { kill(getpid(), SIGUSR1); }

EndOnSignal::EndOnSignal() {
  thread_ = std::thread([this] {
    while (!over_) {
      const auto signal = signals_.wait(std::nullopt);
      if (over_ || (signal != SIGTERM && signal != SIGINT)) continue;
      std::fflush(stdout);
      std::_Exit(0);
    }
  });
}

EndOnSignal::~EndOnSignal() {
  over_ = true;
  Signals::nudge();
  thread_.join();
}

}  // namespace troupe::cli
