#pragma once

#include <algorithm>
#include <cassert>
#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/base/inbox.h"
#include "actors/base/undeliverable.h"
#include "runtime/clock.h"

namespace troupe {

/// Sends a wire message. If it cannot be delivered, Undeliverable comes back.
struct Send {
  Address to;
  MessagePtr message;
  std::optional<Address> from = {};  ///< none: the actor
};
/// Sends a local message. It is dropped if the actor has ended.
struct Tell {
  Address to;
  LocalMessagePtr message;
};

/// What a machine wants done, carried out in the order in which it was appended. `Own` are the
/// kinds that only this machine has; its hands carry them out (actors/base/shell.h).
template <class... Own>
class Effects {
 public:
  using Effect = std::variant<Send, Tell, Own...>;

  template <class Inbox, class T>
    requires TakesWire<Inbox, T>
  void send(const Ref<Inbox>& to, T&& message) {
    list_.push_back(Send{to.address, message_of(std::forward<T>(message))});
  }
  /// A message that is made already: one to several, or one that a job made. That the inbox takes
  /// it is checked here, and not by the compiler.
  template <class Inbox>
  void send(const Ref<Inbox>& to, MessagePtr message) {
    assert(takes<Inbox>(*message));
    list_.push_back(Send{to.address, std::move(message)});
  }
  template <class Inbox, class T>
    requires TakesLocal<Inbox, T>
  void send(const Ref<Inbox>& to, T&& message) {
    list_.push_back(Tell{to.address, local_message_of<Inbox>(std::forward<T>(message))});
  }
  /// Answers a message that is out of place.
  void refuse(const Envelope& envelope, std::string reason) {
    list_.push_back(
        Send{envelope.from, message_of(undeliverable(envelope, refused(std::move(reason)))),
             envelope.to});
  }
  template <class E>
    requires(std::same_as<std::remove_cvref_t<E>, Own> || ...)
  void add(E&& effect) {
    list_.emplace_back(std::forward<E>(effect));
  }
  /// The machine wants to be woken at that time, or earlier.
  void wake_at(TimePoint time) { wake_ = wake_ ? std::min(*wake_, time) : time; }

  const std::vector<Effect>& list() const { return list_; }
  std::vector<Effect> take() { return std::exchange(list_, {}); }
  std::optional<TimePoint> wake() const { return wake_; }

 private:
  std::vector<Effect> list_;
  std::optional<TimePoint> wake_;
};

}  // namespace troupe
