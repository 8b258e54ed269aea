#pragma once

#include <sys/un.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/clock.h"

namespace troupe::cli {

/// What a service manager such as systemd hears of this process, as sd_notify(3) has it: datagrams
/// to $NOTIFY_SOCKET. Where there is none it does nothing. A datagram that cannot be sent does no
/// harm: what is still true is sent again.
///
///     READY=1      once, when it is ready          STATUS=...   whenever it changes
///     WATCHDOG=1   while it is alive               STOPPING=1   when it begins to end
class ServiceNotifier {
 public:
  struct State {
    bool ready = false;
    std::string status;  ///< one line for people
  };
  /// How to learn what there is to tell; called on a thread of its own.
  struct Source {
    std::function<State()> state;  ///< every second; must not wait
    std::function<bool()> alive;   ///< thrice in $WATCHDOG_USEC: whether it makes real progress
  };

  /// Takes the variables out of the environment: a child must not speak for this process. To be
  /// made before there are other threads.
  ServiceNotifier();
  ~ServiceNotifier();
  /// From now on it is told. Once.
  void start(Source source);
  /// It begins to end: nothing of `source` is called after that. Any number of times.
  void stop();

 private:
  void run(const Source& source);
  bool send(const std::string& message) const;

  int socket_ = -1;
  sockaddr_un address_{};
  socklen_t address_size_ = 0;
  std::optional<Duration> watchdog_;  ///< how often to say that it is alive

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe::cli
