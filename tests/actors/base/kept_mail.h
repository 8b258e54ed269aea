#pragma once

#include <deque>
#include <utility>

#include "actors/base/mailbox.h"
#include "actors/interfaces.h"

namespace troupe::testing {

inline Address at(std::uint32_t node, std::uint64_t incarnation,
                  ActorKind kind = ActorKind::kReplica) {
  return {NodeId{node}, Incarnation{incarnation}, {kind, 0}};
}

/// A mailbox that nobody empties.
class KeptMail final : public Mailbox {
 public:
  void end() override { ended = true; }
  /// As if an actor had taken the oldest.
  Mail take() {
    Mail mail = std::move(kept.front());
    kept.pop_front();
    taken();
    return mail;
  }
  std::deque<Mail> kept;
  bool ended = false;

 private:
  void enqueue(Mail mail) override { kept.push_back(std::move(mail)); }
};

}  // namespace troupe::testing
