#pragma once

#include <memory>

#include "runtime/result.h"

namespace caf {
class actor_system;
}

namespace troupe {

struct CafOptions {
  /// Threads for event-based actors, which only pass messages: whatever computes is on threads of
  /// its own. Two, so that one slow behaviour does not stop the others.
  int scheduler_threads = 2;
};

/// The process's CAF runtime, configured once for everyone: shared work queue (idle threads sleep,
/// they never poll), the middleman's multiplexer on one thread, no automatic connections, no BASP
/// port. main() makes it and passes it down; it must outlive every actor and the control lane.
class CafSystem {
 public:
  static Result<std::unique_ptr<CafSystem>> make(const CafOptions& options = {});
  /// Waits until all actors have ended: stop them first.
  ~CafSystem();

  caf::actor_system& system();

 private:
  struct Impl;
  explicit CafSystem(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
