#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "actors/base/post.h"
#include "actors/control/control_lane.h"
#include "actors/control/head_link.h"
#include "actors/control/session_lane.h"
#include "actors/interfaces.h"

namespace troupe {

/// The head's end of every session, whether it came over a lane or from within the process. It
/// stamps messages of sessions that are no member's with the session's own address, and drops what
/// a member sends in another's name. What comes becomes mail. Thread-safe.
///
///     lane ──────► on_session_up, on_message, on_session_down ─┬─► Supervisor
///     LocalLink ─►                                             ├─► Router
///                                                              └─► Clients: what programs generate
class SessionHub final : public ControlEvents {
 public:
  /// Takes ClientGenerate and ClientCancel (see ClientDoor). Called from the lanes' threads, in
  /// order of each session; must not block.
  class Clients {
   public:
    virtual ~Clients() = default;
    virtual void on_request(std::uint32_t session, MessagePtr message) = 0;
    virtual void on_session_down(std::uint32_t session) = 0;
  };

  /// `post` and `lane` must outlive it.
  SessionHub(Post& post, Ref<SupervisorInbox> supervisor, SessionLane& lane);
  /// No event may come any more.
  ~SessionHub() override;

  /// Before the first session. Without it the Supervisor gets their messages, and refuses them.
  void set_clients(Clients& clients) { clients_ = &clients; }

  /// A worker's or client's way to this head without a network. The hub must outlive it.
  std::unique_ptr<HeadLink> make_local_link();

  /// From now on the session speaks for that life of that node, which the post reaches through it.
  void bind(std::uint32_t session, NodeId node, Incarnation incarnation);
  Status send(std::uint32_t session, const Envelope& envelope);
  /// After what was sent has left.
  void close(std::uint32_t session, const std::string& reason);

  /// The address of the other end of an unbound session.
  Address address_of(std::uint32_t session) const;

  // ControlEvents: from the lane.
  void on_session_up(SessionId session, SessionEnds ends) override;
  void on_message(SessionId session, Envelope envelope) override;
  void on_session_down(SessionId session, SessionEnd end) override;

 private:
  class LocalLink;
  struct Binding {
    NodeId node;
    Incarnation incarnation;
  };
  std::uint32_t open_local(LocalLink* link);
  Status send_to_stranger(const Envelope& envelope);
  void drop_lane(std::uint32_t session);  // mutex_ held

  Post& post_;
  const Ref<SupervisorInbox> supervisor_;
  SessionLane& lane_;
  Clients* clients_ = nullptr;
  /// Recursive: what a local link is handed may come back as a message before `send` has returned.
  std::recursive_mutex mutex_;
  std::map<std::uint32_t, Binding> bindings_;   // guarded by mutex_; until the session is down
  std::map<std::uint32_t, Binding> lanes_;      // guarded by mutex_; until it is closed: in post_
  std::map<std::uint32_t, LocalLink*> locals_;  // guarded by mutex_
  std::uint32_t next_local_;                    // guarded by mutex_; above the lane's numbers
};

}  // namespace troupe
