#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/control/control_lane.h"
#include "actors/control/tls_session.h"

/// The broker behind ControlServer and ControlClient.
namespace troupe::control {

class LaneCore;

/// Owns the broker: sessions of one side over sockets in CAF's multiplexer.
///
///     any thread                      multiplexer's thread
///     send() -> encode -> outbox -> wake -> TLS -> socket
///     events <- decode <- frames <- TLS <- socket
class Lane {
 public:
  static Result<std::unique_ptr<Lane>> start(caf::actor_system& system,
                                             const Credentials& credentials, TlsSide side,
                                             ControlEvents& events, const ControlOptions& options);
  /// Closes everything and waits until the broker has ended.
  ~Lane();

  /// Takes over a listening socket.
  void listen(int fd);
  /// Announces a session whose socket comes later, by `adopt`, or never, by `give_up`.
  SessionId announce();
  void adopt(SessionId session, int fd, std::string peer, TimePoint deadline);
  void give_up(SessionId session, SessionEnd end);

  Status send(SessionId session, const Envelope& envelope);
  void close(SessionId session, Duration deadline);
  ControlStats stats() const;
  /// For connections that come, or are adopted, from now on.
  Status use(const Credentials& credentials);

 private:
  Lane(std::shared_ptr<LaneCore> core, TlsSide side, bool desk);
  std::shared_ptr<LaneCore> core_;
  const TlsSide side_;
  const bool desk_;
};

}  // namespace troupe::control
