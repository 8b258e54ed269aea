#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>

#include "actors/company/actor_shell.h"
#include "actors/machine.h"

namespace troupe {

/// Carries an envelope to another node: the control lane's session or the bulk lane's connection.
using Lane = std::function<Status(const Envelope&)>;

/// The post office of one process: brings envelopes to the actors of the nodes that live here, by
/// pointer, and hands the others to the lane that leads to their node. It is the one place that
/// fences: an envelope to or from a life of a node that is not the known one is refused.
/// Thread-safe.
class Post {
 public:
  /// Actors of this process.
  void attach(const Address& address, ActorHandle actor);
  void detach(const Address& address);
  /// Detaches all actors of a node's life that lives here.
  void detach_node(NodeId node, Incarnation incarnation);

  /// Where nodes of other processes are reached. A newer life replaces an older one's lane.
  void set_lane(NodeId node, Incarnation incarnation, Lane lane);
  void drop_lane(NodeId node, Incarnation incarnation);

  /// Sends, whatever it takes. If it cannot be delivered, the sender gets Undeliverable (once; what
  /// is itself Undeliverable is dropped). Never blocks.
  void send(Envelope envelope);
  void send(const Address& from, Actions::Send&& send) {
    this->send(Envelope{from, send.to, std::move(send.message)});
  }

  /// An envelope that a lane brought: delivered only if its receiver lives here.
  void deliver(Envelope envelope);

  std::uint64_t fenced() const { return fenced_.load(std::memory_order_relaxed); }

 private:
  Status route(const Envelope& envelope);

  struct Node {
    Incarnation incarnation;
    Lane lane;
  };
  mutable std::shared_mutex mutex_;
  std::map<Address, ActorHandle> actors_;                // guarded by mutex_
  std::map<NodeId, std::shared_ptr<const Node>> lanes_;  // guarded by mutex_
  std::atomic<std::uint64_t> fenced_{0};
};

/// What an undeliverable message was about, so that its sender knows which wait has ended.
std::uint64_t reference_of(const Message& message);

}  // namespace troupe
