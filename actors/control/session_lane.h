#pragma once

#include <cstdint>
#include <string>

#include "transport/message.h"

namespace troupe {

/// The way to the peers of the head's sessions: ControlServer in a process; the simulation has a
/// network of its own. Thread-safe; no call blocks.
class SessionLane {
 public:
  virtual ~SessionLane() = default;
  virtual Status send(std::uint32_t session, const Envelope& envelope) = 0;
  /// After what was sent has left; the session's end is told as always.
  virtual void close(std::uint32_t session, const std::string& reason) = 0;
};

}  // namespace troupe
