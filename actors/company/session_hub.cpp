#include "actors/company/session_hub.h"

#include <atomic>

#include "runtime/log.h"

namespace troupe {

/// One end for the worker, one for the hub; what one side sends the other is told at once.
class SessionHub::LocalLink : public HeadLink {
 public:
  explicit LocalLink(SessionHub& hub) : hub_(hub) {}
  ~LocalLink() override { close(); }

  void listen(Events events) override { events_ = std::move(events); }
  void connect() override {
    close();
    const std::uint32_t session = hub_.open_local(this);
    session_ = session;
    events_.up();
    hub_.events_.up(session, "this process");
  }
  Status send(const Envelope& envelope) override {
    const std::uint32_t session = session_;
    if (session == 0) return unavailable("There is no session with the head.");
    hub_.incoming(session, envelope);
    return {};
  }
  void close() override {
    const std::uint32_t session = session_.exchange(0);
    if (session == 0) return;
    hub_.forget(session);
    hub_.events_.down(session, "it left");
    if (events_.down) events_.down("the session was closed", false);
  }

  void deliver(const Envelope& envelope) { events_.message(envelope); }

 private:
  SessionHub& hub_;
  Events events_;
  std::atomic<std::uint32_t> session_{0};  // 0: none
};

SessionHub::~SessionHub() { end(); }

void SessionHub::end() { server_.reset(); }

Status SessionHub::listen(caf::actor_system& system, const HostPort& address,
                          const Credentials& credentials) {
  auto server = ControlServer::listen(system, address, credentials, *this);
  if (!server.ok()) return server.error();
  server_ = std::move(*server);
  return {};
}

std::unique_ptr<HeadLink> SessionHub::make_local_link() {
  return std::make_unique<LocalLink>(*this);
}

std::uint32_t SessionHub::open_local(LocalLink* link) {
  std::lock_guard lock(mutex_);
  locals_[next_local_] = link;
  return next_local_++;
}

void SessionHub::forget(std::uint32_t session) {
  std::lock_guard lock(mutex_);
  locals_.erase(session);
  bindings_.erase(session);
}

void SessionHub::bind(std::uint32_t session, NodeId node, Incarnation incarnation) {
  std::lock_guard lock(mutex_);
  bindings_[session] = {node, incarnation};
}

Status SessionHub::send(std::uint32_t session, const Envelope& envelope) {
  {
    std::lock_guard lock(mutex_);
    if (const auto it = locals_.find(session); it != locals_.end()) {
      it->second->deliver(envelope);
      return {};
    }
  }
  if (!server_) return unavailable("The session has ended.");
  return server_->send(SessionId{session}, envelope);
}

void SessionHub::close(std::uint32_t session) {
  if (server_ && session < (1u << 31)) return server_->close(SessionId{session});
}

void SessionHub::incoming(std::uint32_t session, Envelope envelope) {
  {
    std::lock_guard lock(mutex_);
    const auto it = bindings_.find(session);
    if (it == bindings_.end()) {
      envelope.from = address_of(session);
    } else if (envelope.from.node != it->second.node ||
               envelope.from.incarnation != it->second.incarnation) {
      // A Join from before the Welcome came, or a life that is over.
      spdlog::debug("dropped a message of {} on the session of {}", to_string(envelope.from),
                    to_string(it->second.node));
      return;
    }
  }
  events_.message(session, std::move(envelope));
}

void SessionHub::on_session_up(SessionId session, std::string peer) {
  events_.up(session.value, std::move(peer));
}

void SessionHub::on_message(SessionId session, Envelope envelope) {
  incoming(session.value, std::move(envelope));
}

void SessionHub::on_session_down(SessionId session, SessionEnd end) {
  forget(session.value);
  events_.down(session.value, std::move(end.text));
}

}  // namespace troupe
