#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/control/credentials.h"
#include "runtime/clock.h"
#include "runtime/result.h"

namespace troupe::control {

/// A TCP connection, or why there is none: kUnavailable, kNotFound (no such name),
/// kDeadlineExceeded. The descriptor is the receiver's to close.
struct Dialed {
  int fd = -1;
  std::string peer;  ///< "host:port", numeric
};
using DialDone = std::function<void(Result<Dialed>)>;

/// Connects without blocking anyone, on a thread of its own. Looking up a name cannot be
/// interrupted: it runs on a thread that is given up at the deadline; there is one at a time.
class Dialer {
 public:
  /// kUnavailable: no descriptor or thread is to be had.
  static Result<std::unique_ptr<Dialer>> make();
  /// Attempts that are under way end without a word.
  ~Dialer();

  /// `done` is called once, on the dialer's thread, by the deadline.
  void dial(const HostPort& address, TimePoint deadline, DialDone done);

 private:
  struct Impl;
  explicit Dialer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Sets what every control connection wants: no delay, and a dead peer noticed within seconds.
void set_control_socket_options(int fd);
/// "host:port" of the other end, numeric.
std::string peer_of(int fd);
/// The same of this end.
std::string own_end_of(int fd);

/// A socket that listens there. Errors as ControlServer::listen.
struct Listening {
  int fd = -1;
  std::uint16_t port = 0;
};
Result<Listening> open_listener(const HostPort& address);

}  // namespace troupe::control
