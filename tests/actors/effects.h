#pragma once

#include <vector>

#include "actors/base/shell.h"

namespace troupe::testing {

/// All effects of one kind, in their order.
template <class E, class Effects>
std::vector<E> all(const Effects& effects) {
  std::vector<E> found;
  for (const auto& effect : effects.list())
    if (const auto* e = std::get_if<E>(&effect)) found.push_back(*e);
  return found;
}

/// The wire messages of one kind that are sent, in their order.
template <class T, class Effects>
std::vector<T> sent(const Effects& effects) {
  std::vector<T> found;
  for (const auto& send : all<Send>(effects))
    if (const auto* message = std::get_if<T>(send.message.get())) found.push_back(*message);
  return found;
}

/// The local messages of one kind that are sent to actors with that inbox, in their order.
template <class Inbox, class T, class Effects>
std::vector<T> told(const Effects& effects) {
  static_assert(TakesLocal<Inbox, T>);
  std::vector<T> found;
  for (const auto& tell : all<Tell>(effects))
    if (tell.to.actor.kind == Inbox::kKind)
      if (const auto* message = dynamic_cast<const LocalMessageOf<T>*>(tell.message.get()))
        found.push_back(message->content);
  return found;
}

/// What a local message to that inbox says, if it says a T.
template <class Inbox, class T>
T* local(const Mail& mail) {
  static_assert(TakesLocal<Inbox, T>);
  auto* message = dynamic_cast<LocalMessageOf<T>*>(mail.local.get());
  return message ? &message->content : nullptr;
}

}  // namespace troupe::testing
