#include <mutex>
#include <optional>

#include "actors/control/head_link.h"

namespace troupe {
namespace {

class TcpLink : public HeadLink, public ControlEvents {
 public:
  explicit TcpLink(std::vector<HostPort> heads) : heads_(std::move(heads)) {}

  Status start(caf::actor_system& system, const Credentials& credentials) {
    auto client = ControlClient::start(system, credentials, *this);
    if (!client.ok()) return client.error();
    client_ = std::move(*client);
    return {};
  }

  void listen(Events events) override { events_ = std::move(events); }

  void connect() override {
    std::lock_guard lock(mutex_);
    if (session_) client_->close(*session_);
    session_ = client_->connect(heads_[next_++ % heads_.size()], limits::kHandshakeDeadline);
  }

  Status send(const Envelope& envelope) override {
    std::optional<SessionId> session;
    {
      std::lock_guard lock(mutex_);
      session = session_;
    }
    if (!session) return unavailable("There is no connection to the head.");
    return client_->send(*session, envelope);
  }

  void close() override {
    std::lock_guard lock(mutex_);
    if (session_) client_->close(*session_);
  }

 private:
  bool current(SessionId session) {
    std::lock_guard lock(mutex_);
    return session_ == session;
  }
  void on_session_up(SessionId session, std::string) override {
    if (current(session)) events_.up();
  }
  void on_message(SessionId session, Envelope envelope) override {
    if (current(session)) events_.message(std::move(envelope));
  }
  void on_session_down(SessionId session, SessionEnd end) override {
    {
      std::lock_guard lock(mutex_);
      if (session_ != session) return;
      session_.reset();
    }
    events_.down(std::move(end.text), end.kind == SessionEndKind::kForeign);
  }

  const std::vector<HostPort> heads_;
  Events events_;
  std::mutex mutex_;
  std::optional<SessionId> session_;       // guarded by mutex_
  std::size_t next_ = 0;                   // guarded by mutex_
  std::unique_ptr<ControlClient> client_;  // last: its events use everything above
};

}  // namespace

Result<std::unique_ptr<HeadLink>> make_tcp_link(caf::actor_system& system,
                                                std::vector<HostPort> heads,
                                                const Credentials& credentials) {
  if (heads.empty()) return invalid_argument("No address of the head is known.");
  auto link = std::make_unique<TcpLink>(std::move(heads));
  if (const Status started = link->start(system, credentials); !started.ok())
    return started.error();
  return std::unique_ptr<HeadLink>(std::move(link));
}

}  // namespace troupe
