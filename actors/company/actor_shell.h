#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/clock.h"
#include "runtime/result.h"
#include "transport/message.h"

namespace caf {
class actor_system;
}

namespace troupe {

/// Reaches an actor of this process. Cheap to copy, usable from any thread; what is sent to an
/// actor that has ended is dropped.
class ActorHandle {
 public:
  ActorHandle() = default;

  /// Puts a message into the mailbox. kResourceExhausted when limits::kMailboxMax wait there.
  Status deliver(Envelope envelope) const;
  /// Runs `call` inside the actor, in turn with its messages. The same bound.
  Status call(std::function<void()> call) const;
  /// Has the actor's body woken at `time`; an earlier time replaces a later one. From inside only.
  void wake_at(TimePoint time) const;
  /// Ends the actor once what is in its mailbox has been handled.
  void stop() const;
  /// As stop(), and waits until it has ended; false when `deadline` passed first.
  bool stop_and_wait(Duration deadline) const;

  explicit operator bool() const { return shared_ != nullptr; }

 private:
  friend struct ActorShell;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// What is inside an actor: usually a state machine and what carries out its actions. All calls
/// come one after the other. An exception that leaves a call ends the process: it is a defect.
class ActorBody {
 public:
  virtual ~ActorBody() = default;
  virtual void on_message(const Envelope& envelope) = 0;
  virtual void on_wake() {}
};

/// A body that is two calls of whoever owns the actor.
std::unique_ptr<ActorBody> make_body(std::function<void(const Envelope&)> on_message,
                                     std::function<void()> on_wake);

/// Starts an actor under CAF's scheduler. `make_body` runs inside of it and gets its own handle.
ActorHandle spawn_actor(caf::actor_system& system,
                        std::function<std::unique_ptr<ActorBody>(const ActorHandle&)> make_body);

}  // namespace troupe
