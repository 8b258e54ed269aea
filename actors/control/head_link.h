#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/control/control_lane.h"
#include "runtime/result.h"
#include "transport/bulk_address.h"
#include "transport/message.h"

namespace caf {
class actor_system;
}

namespace troupe {

/// A worker's or a client's way to the head: one session at a time, made again on demand. Over TCP,
/// or within the process.
class HeadLink {
 public:
  /// Called from any thread, in order of each session; must not block.
  struct Events {
    std::function<void(const ControlWay&)> up;
    std::function<void(Envelope)> message;
    std::function<void(std::string reason, bool foreign)> down;
  };
  virtual ~HeadLink() = default;
  /// Once, before anything else.
  virtual void listen(Events events) = 0;
  /// Another "host:port" at which a head may be. Only the newest few of them count.
  virtual void seek_also(const std::string&) {}
  /// Other credentials for sessions that begin from now on. Errors as make_tcp_link's.
  virtual Status use(const Credentials&) { return {}; }
  /// Where heads are sought, the one that was tried last first.
  virtual std::vector<HostPort> sought() const { return {}; }
  /// Where the last session was sought, "host:port"; empty: nowhere in particular.
  virtual std::string tried() const { return {}; }
  /// The next session begins where the last one did.
  virtual void stay() {}
  /// Begins a session; `up` or `down` follows.
  virtual void connect() = 0;
  virtual Status send(const Envelope& envelope) = 0;
  /// Ends the session after what was sent has left.
  virtual void close() = 0;
};

/// Over the control lane; tries the addresses in turn, one a connect().
Result<std::unique_ptr<HeadLink>> make_tcp_link(caf::actor_system& system,
                                                std::vector<HostPort> heads,
                                                const Credentials& credentials);

}  // namespace troupe
