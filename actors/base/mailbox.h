#pragma once

#include <atomic>

#include "actors/base/inbox.h"
#include "runtime/limits.h"
#include "runtime/result.h"

namespace troupe {

/// The mailbox of one actor, bounded. Room is reserved for local messages: peers cannot keep a node
/// from hearing its own news. Thread-safe.
class Mailbox {
 public:
  virtual ~Mailbox() = default;

  /// kResourceExhausted when it is full.
  Status put(Mail mail) {
    const std::size_t most =
        mail.local ? limits::kMailboxMax + limits::kMailboxReserved : limits::kMailboxMax;
    if (waiting_.fetch_add(1, std::memory_order_relaxed) >= most) {
      taken();
      return resource_exhausted("An actor's mailbox is full; its node is overloaded.");
    }
    enqueue(std::move(mail));
    return {};
  }
  /// The actor takes what lies in it before, and then ends.
  virtual void end() = 0;

 protected:
  virtual void enqueue(Mail mail) = 0;
  /// A message was taken out.
  void taken() { waiting_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  std::atomic<std::size_t> waiting_{0};
};

}  // namespace troupe
