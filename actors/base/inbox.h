#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "transport/message.h"

/// What an actor's mailbox takes. Each actor has an inbox type in actors/interfaces.h: a list of
/// messages that may come over a wire, and a list of those that only this process can say.
namespace troupe {

/// A message that only this process can say, whatever it holds.
class LocalMessage {
 public:
  virtual ~LocalMessage() = default;
  const std::size_t index;  ///< in the list of the inbox that it is for

 protected:
  explicit LocalMessage(std::size_t i) : index(i) {}
};
template <class T>
class LocalMessageOf final : public LocalMessage {
 public:
  LocalMessageOf(std::size_t i, T c) : LocalMessage(i), content(std::move(c)) {}
  T content;  ///< taken out by the receiver
};
using LocalMessagePtr = std::shared_ptr<LocalMessage>;

/// Messages of transport/message.h: they come by pointer from actors of this process, or over a
/// wire.
template <class... Messages>
struct Wire {
  template <class T>
  static constexpr bool kHas = (std::same_as<T, Messages> || ...);
};

/// Messages that only this process can say. The codec cannot make one. A sender needs to define its
/// own message only: the others of the list may be incomplete there.
template <class... Messages>
struct Local {
  template <class T>
  static constexpr bool kHas = (std::same_as<T, Messages> || ...);
  /// Where a message stands in the list.
  template <class T>
  static constexpr std::size_t index() {
    std::size_t index = 0;
    (void)((std::same_as<T, Messages> || (++index, false)) || ...);
    return index;
  }
  /// Calls `take` with the content of a message of this list.
  template <class Take>
  static void open(LocalMessage& message, const Take& take);
};

template <class Inbox, class T>
concept TakesWire = Inbox::wire::template kHas<std::remove_cvref_t<T>>;
template <class Inbox, class T>
concept TakesLocal = Inbox::local::template kHas<std::remove_cvref_t<T>>;

/// Whether that inbox takes a message whose kind is known at run time only.
template <class Inbox>
bool takes(const Message& message) {
  return std::visit([]<class T>(const T&) { return TakesWire<Inbox, T>; }, message);
}

/// The address of an actor with that inbox. What the inbox does not take cannot be sent there.
template <class Inbox>
struct Ref {
  Address address;

  Ref() = default;
  Ref(NodeId node, Incarnation incarnation, std::uint32_t index = 0)
      : address{node, incarnation, {Inbox::kKind, index}} {}
  auto operator<=>(const Ref&) const = default;
};

template <class Inbox, class T>
  requires TakesLocal<Inbox, T>
LocalMessagePtr local_message_of(T&& message) {
  using Message = std::remove_cvref_t<T>;
  return std::make_shared<LocalMessageOf<Message>>(Inbox::local::template index<Message>(),
                                                   std::forward<T>(message));
}

template <class... Messages>
template <class Take>
void Local<Messages...>::open(LocalMessage& message, const Take& take) {
  const auto open_if = [&]<class T>(std::type_identity<T>) {
    if (message.index != index<T>()) return false;
    take(static_cast<LocalMessageOf<T>&>(message).content);
    return true;
  };
  (void)(open_if(std::type_identity<Messages>{}) || ...);
}

/// What lies in a mailbox: a message of either sort.
struct Mail {
  Envelope envelope;      ///< its message is null if `local` is set
  LocalMessagePtr local;  ///< for the inbox of the address's kind

  Mail() = default;
  explicit Mail(Envelope wire) : envelope(std::move(wire)) {}
  Mail(const Address& from, const Address& to, LocalMessagePtr message)
      : envelope{from, to, nullptr}, local(std::move(message)) {}
};

/// host -> the actor that is to hear of it: that actor has ended, and what it held is free.
struct Ended {
  Address actor;
};

}  // namespace troupe
