#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "actors/base/mailbox.h"

namespace troupe {

/// The way to another node: the control lane's session or the bulk lane's connection.
using SendByLane = std::function<Status(const Envelope&)>;

/// The post office of one process: brings mail to the actors of the nodes that live here, by
/// pointer, and hands wire messages for others to the lane that leads to their node. It is the one
/// place that fences: an envelope to a life of a node that is not the known one is refused.
/// Thread-safe.
class Post {
 public:
  /// Actors of this process. An actor may have several addresses.
  void attach(const Address& address, std::shared_ptr<Mailbox> mailbox);
  /// Null if nobody has that address.
  std::shared_ptr<Mailbox> detach(const Address& address);
  std::shared_ptr<Mailbox> find(const Address& address) const;

  /// Where nodes of other processes are reached. A newer life replaces an older one's lane.
  void set_lane(NodeId node, Incarnation incarnation, SendByLane lane);
  void drop_lane(NodeId node, Incarnation incarnation);

  /// Sends, whatever it takes. If it cannot be delivered, the sender gets Undeliverable (once; what
  /// is itself Undeliverable is dropped). Never blocks.
  void send(Envelope envelope);

  /// What actors of that life of a node send to other nodes waits from now on.
  void hold(NodeId node, Incarnation incarnation);
  /// It is sent, in its order, or dropped.
  void end_hold(NodeId node, Incarnation incarnation, bool send);

  /// An envelope that a lane brought: delivered only if its receiver lives here.
  void deliver(Envelope envelope);

  /// Brings a local message to an actor of this process. False: there is none, or it is full.
  bool tell(Mail mail);
  template <class Inbox, class T>
    requires TakesLocal<Inbox, T>
  bool tell(const Ref<Inbox>& to, T&& message) {
    return tell(Mail({}, to.address, local_message_of<Inbox>(std::forward<T>(message))));
  }

  std::uint64_t fenced() const { return fenced_.load(std::memory_order_relaxed); }

 private:
  Status route(const Envelope& envelope);
  std::optional<Status> keep(const Envelope& envelope);
  void answer(const Envelope& envelope, Error why);

  struct Node {
    Incarnation incarnation;
    SendByLane lane;
  };
  struct Held {
    Incarnation incarnation;
    std::vector<Envelope> mail;  ///< at most kHeldMax
  };
  mutable std::shared_mutex mutex_;
  std::map<Address, std::shared_ptr<Mailbox>> actors_;   // guarded by mutex_
  std::map<NodeId, std::shared_ptr<const Node>> lanes_;  // guarded by mutex_
  std::map<NodeId, Held> held_;                          // guarded by mutex_
  std::atomic<bool> holding_{false};                     // held_ is not empty
  std::atomic<std::uint64_t> fenced_{0};
};

}  // namespace troupe
