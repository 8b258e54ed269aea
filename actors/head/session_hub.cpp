#include "actors/head/session_hub.h"

#include <atomic>
#include <utility>

#include "runtime/log.h"

namespace troupe {
namespace {

/// Sessions from within the process have numbers from here on.
constexpr std::uint32_t kFirstLocal = 1u << 31;

bool for_clients(const Message& message) {
  return std::holds_alternative<ClientGenerate>(message) ||
         std::holds_alternative<ClientCancel>(message);
}

}  // namespace

/// One end for the worker, one for the hub; what one side sends the other hears at once.
class SessionHub::LocalLink : public HeadLink {
 public:
  explicit LocalLink(SessionHub& hub) : hub_(hub) {}
  ~LocalLink() override { close(); }

  void listen(Events events) override { events_ = std::move(events); }
  void connect() override {
    close();
    const std::uint32_t session = hub_.open_local(this);
    session_ = session;
    events_.up({});
    hub_.on_session_up(SessionId{session}, {"this process"});
  }
  Status send(const Envelope& envelope) override {
    const std::uint32_t session = session_;
    if (session == 0) return unavailable("There is no session with the head.");
    hub_.on_message(SessionId{session}, envelope);
    return {};
  }
  void close() override {
    const std::uint32_t session = session_.exchange(0);
    if (session == 0) return;
    hub_.on_session_down(SessionId{session}, {SessionEndKind::kPeerClosed, "it left"});
    if (events_.down) events_.down("the session was closed", false);
  }

  void deliver(const Envelope& envelope) { events_.message(envelope); }

 private:
  SessionHub& hub_;
  Events events_;
  std::atomic<std::uint32_t> session_{0};  // 0: none
};

SessionHub::SessionHub(Post& post, Ref<SupervisorInbox> supervisor, SessionLane& lane)
    : post_(post), supervisor_(supervisor), lane_(lane), next_local_(kFirstLocal) {
  // What is refused is answered even if its session is no member's.
  post_.set_lane(supervisor_.address.node, supervisor_.address.incarnation,
                 [this](const Envelope& envelope) { return send_to_stranger(envelope); });
}

SessionHub::~SessionHub() {
  post_.drop_lane(supervisor_.address.node, supervisor_.address.incarnation);
  for (const auto& [session, member] : lanes_) post_.drop_lane(member.node, member.incarnation);
}

std::unique_ptr<HeadLink> SessionHub::make_local_link() {
  return std::make_unique<LocalLink>(*this);
}

std::uint32_t SessionHub::open_local(LocalLink* link) {
  std::lock_guard lock(mutex_);
  locals_[next_local_] = link;
  return next_local_++;
}

Address SessionHub::address_of(std::uint32_t session) const {
  return Ref<SessionInbox>(kHeadNode, supervisor_.address.incarnation, session).address;
}

// --- To the other end ---------------------------------------------------------------------------

void SessionHub::bind(std::uint32_t session, NodeId node, Incarnation incarnation) {
  {
    std::lock_guard lock(mutex_);
    bindings_[session] = lanes_[session] = {node, incarnation};
  }
  post_.set_lane(node, incarnation,
                 [this, session](const Envelope& envelope) { return send(session, envelope); });
}

Status SessionHub::send(std::uint32_t session, const Envelope& envelope) {
  {
    std::lock_guard lock(mutex_);
    if (const auto it = locals_.find(session); it != locals_.end()) {
      it->second->deliver(envelope);
      return {};
    }
  }
  if (session >= kFirstLocal) return unavailable("The session has ended.");
  return lane_.send(session, envelope);
}

Status SessionHub::send_to_stranger(const Envelope& envelope) {
  if (envelope.to.actor.kind != SessionInbox::kKind)
    return unavailable(to_string(envelope.to) + " has ended.");
  return send(envelope.to.actor.index, envelope);
}

void SessionHub::close(std::uint32_t session, const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    drop_lane(session);
  }
  if (session < kFirstLocal) lane_.close(session, reason);
}

void SessionHub::drop_lane(std::uint32_t session) {
  if (const auto bound = lanes_.extract(session))
    post_.drop_lane(bound.mapped().node, bound.mapped().incarnation);
}

// --- From the other end -------------------------------------------------------------------------

void SessionHub::on_session_up(SessionId session, SessionEnds ends) {
  post_.tell(supervisor_,
             SessionUp{session.value, std::move(ends.peer), std::move(ends.certificate)});
}

void SessionHub::on_message(SessionId session, Envelope envelope) {
  {
    std::lock_guard lock(mutex_);
    const auto it = bindings_.find(session.value);
    if (it == bindings_.end()) {
      envelope.from = address_of(session.value);
    } else if (envelope.from.node != it->second.node ||
               envelope.from.incarnation != it->second.incarnation) {
      // A Join from before the Welcome came, or a life that is over.
      logger().debug("dropped a message of {} on the session of {}", to_string(envelope.from),
                    to_string(it->second.node));
      return;
    }
  }
  if (clients_ && for_clients(*envelope.message))
    return clients_->on_request(session.value, std::move(envelope.message));
  // What comes on a session is for this head, even if the sender knows an earlier life of it.
  if (envelope.to.actor.kind != RouterInbox::kKind) envelope.to = supervisor_.address;
  post_.deliver(std::move(envelope));
}

void SessionHub::on_session_down(SessionId session, SessionEnd end) {
  {
    std::lock_guard lock(mutex_);
    locals_.erase(session.value);
    bindings_.erase(session.value);
    drop_lane(session.value);
  }
  if (clients_) clients_->on_session_down(session.value);
  post_.tell(supervisor_, SessionDown{session.value, std::move(end.text)});
}

}  // namespace troupe
