#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "transport/message.h"

namespace troupe {

/// What a state machine wants done. Machines never do anything themselves: they are handed an event
/// and `now`, and append here; the actor around them carries it out in order. That is what lets a
/// seeded simulation run the real code.
///
/// A machine looks like this:
///
///     void on(const Envelope& envelope, TimePoint now, SomeActions& actions);
///     void on_wake(TimePoint now, SomeActions& actions);   // no later than the time asked for
///
/// where SomeActions is Actions or a struct derived from it with the machine's own kinds of deeds.
struct Actions {
  struct Send {
    Address to;
    MessagePtr message;
  };
  std::vector<Send> sends;
  std::optional<TimePoint> wake;  ///< the earliest time asked for

  template <class T>
  void send(const Address& to, T&& content) {
    sends.push_back({to, message_of(std::forward<T>(content))});
  }
  void wake_at(TimePoint time) { wake = wake ? std::min(*wake, time) : time; }
};

}  // namespace troupe
