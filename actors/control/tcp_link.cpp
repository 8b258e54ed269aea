#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

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

  void seek_also(const std::string& text) override {
    const auto address = parse_host_port(text);
    if (!address.ok()) return;
    std::lock_guard lock(mutex_);
    std::erase(learned_, *address);
    if (std::ranges::count(heads_, *address) > 0) return;
    learned_.push_back(*address);
    if (learned_.size() > kLearnedMax) learned_.erase(learned_.begin());
  }

  Status use(const Credentials& credentials) override { return client_->use(credentials); }

  std::vector<HostPort> sought() const override {
    std::lock_guard lock(mutex_);
    std::vector<HostPort> all = heads_;
    all.insert(all.end(), learned_.begin(), learned_.end());
    const auto last = std::ranges::find(all, tried_);
    if (last != all.end()) std::rotate(all.begin(), last, last + 1);
    return all;
  }

  std::string tried() const override {
    std::lock_guard lock(mutex_);
    return to_string(tried_);
  }

  void stay() override {
    std::lock_guard lock(mutex_);
    stays_ = true;
  }

  void connect() override {
    std::lock_guard lock(mutex_);
    if (session_) client_->close(*session_);
    if (!std::exchange(stays_, false)) {
      const std::size_t at = next_++ % (heads_.size() + learned_.size());
      tried_ = at < heads_.size() ? heads_[at] : learned_[at - heads_.size()];
    }
    session_ = client_->connect(tried_, limits::kHandshakeDeadline);
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
  static constexpr std::size_t kLearnedMax = 4;

  bool current(SessionId session) {
    std::lock_guard lock(mutex_);
    return session_ == session;
  }
  void on_session_up(SessionId session, SessionEnds ends) override {
    if (current(session)) events_.up({host_of(ends.own), host_of(ends.peer)});
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
  mutable std::mutex mutex_;
  std::optional<SessionId> session_;       // guarded by mutex_
  std::size_t next_ = 0;                   // guarded by mutex_
  bool stays_ = false;                     // guarded by mutex_
  std::vector<HostPort> learned_;          // guarded by mutex_
  HostPort tried_;                         // guarded by mutex_
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
