#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "actors/control/control_lane.h"
#include "actors/node_agent/head_link.h"

namespace caf {
class actor_system;
}

namespace troupe {

/// The head's end of every session, whether it came over the control lane or from within the
/// process. It stamps messages of sessions that are no member's with the session's own address, and
/// drops what a member sends in another's name. Thread-safe.
class SessionHub : private ControlEvents {
 public:
  /// Told in order of each session, from the lane's threads; must not block.
  struct Events {
    std::function<void(std::uint32_t session, std::string peer)> up;
    std::function<void(std::uint32_t session, Envelope)> message;
    std::function<void(std::uint32_t session, std::string reason)> down;
  };
  SessionHub(Incarnation head, Events events) : head_(head), events_(std::move(events)) {}
  ~SessionHub() override;

  Status listen(caf::actor_system& system, const HostPort& address, const Credentials& credentials);
  /// Ends the server and its sessions; `down` may still be told meanwhile, nothing afterwards.
  void end();
  std::uint16_t port() const { return server_ ? server_->port() : 0; }
  ControlStats stats() const { return server_ ? server_->stats() : ControlStats{}; }

  /// A worker's or client's way to this head without a network. The hub must outlive it.
  std::unique_ptr<HeadLink> make_local_link();

  /// From now on the session speaks for that life of that node.
  void bind(std::uint32_t session, NodeId node, Incarnation incarnation);
  Status send(std::uint32_t session, const Envelope& envelope);
  void close(std::uint32_t session);

  /// The address of whoever is at the other end of an unbound session.
  Address address_of(std::uint32_t session) const {
    return {kHeadNode, head_, {ActorKind::kClient, session}};
  }

 private:
  class LocalLink;
  struct Binding {
    NodeId node;
    Incarnation incarnation;
  };
  void incoming(std::uint32_t session, Envelope envelope);
  void on_session_up(SessionId session, std::string peer) override;
  void on_message(SessionId session, Envelope envelope) override;
  void on_session_down(SessionId session, SessionEnd end) override;
  std::uint32_t open_local(LocalLink* link);
  void forget(std::uint32_t session);

  const Incarnation head_;
  const Events events_;
  /// Recursive: what a local link is handed may come back as a message before `send` has returned.
  std::recursive_mutex mutex_;
  std::map<std::uint32_t, Binding> bindings_;   // guarded by mutex_
  std::map<std::uint32_t, LocalLink*> locals_;  // guarded by mutex_
  std::uint32_t next_local_ = 1u << 31;         // guarded by mutex_; above the server's numbers
  std::unique_ptr<ControlServer> server_;       // last: its events use everything above
};

}  // namespace troupe
