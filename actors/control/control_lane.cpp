#include "actors/control/control_lane.h"

#include "actors/control/dialer.h"
#include "actors/control/lane.h"

namespace troupe {

std::string_view to_string(SessionEndKind kind) {
  switch (kind) {
    case SessionEndKind::kClosed:
      return "closed";
    case SessionEndKind::kPeerClosed:
      return "closed by the peer";
    case SessionEndKind::kUnreachable:
      return "unreachable";
    case SessionEndKind::kForeign:
      return "foreign certificate";
    case SessionEndKind::kDeadline:
      return "too late";
    case SessionEndKind::kStuck:
      return "stuck";
    case SessionEndKind::kGarbage:
      return "broken format";
  }
  return "unknown";
}

Result<std::unique_ptr<ControlServer>> ControlServer::listen(caf::actor_system& system,
                                                             const HostPort& address,
                                                             const Credentials& credentials,
                                                             ControlEvents& events,
                                                             const ControlOptions& options) {
  auto lane = control::Lane::start(system, credentials, control::TlsSide::kServer, events, options);
  if (!lane.ok()) return lane.error();
  const auto listening = control::open_listener(address);
  if (!listening.ok()) return listening.error();
  (*lane)->listen(listening->fd);
  return std::unique_ptr<ControlServer>(
      new ControlServer(std::move(lane).value(), listening->port));
}

ControlServer::ControlServer(std::unique_ptr<control::Lane> lane, std::uint16_t port)
    : lane_(std::move(lane)), port_(port) {}
ControlServer::~ControlServer() = default;

Status ControlServer::use(const Credentials& credentials) { return lane_->use(credentials); }

Status ControlServer::send(SessionId session, const Envelope& envelope) {
  return lane_->send(session, envelope);
}
void ControlServer::close(SessionId session, Duration deadline) { lane_->close(session, deadline); }
Status ControlServer::send(std::uint32_t session, const Envelope& envelope) {
  return send(SessionId{session}, envelope);
}
void ControlServer::close(std::uint32_t session, const std::string&) { close(SessionId{session}); }
ControlStats ControlServer::stats() const { return lane_->stats(); }

/// The dialer goes first: its thread hands sockets to the lane.
struct ControlClient::Impl {
  std::unique_ptr<control::Lane> lane;
  std::unique_ptr<control::Dialer> dialer;
};

Result<std::unique_ptr<ControlClient>> ControlClient::start(caf::actor_system& system,
                                                            const Credentials& credentials,
                                                            ControlEvents& events,
                                                            const ControlOptions& options) {
  auto lane = control::Lane::start(system, credentials, control::TlsSide::kClient, events, options);
  if (!lane.ok()) return lane.error();
  auto dialer = control::Dialer::make();
  if (!dialer.ok()) return dialer.error();
  auto impl = std::make_unique<Impl>();
  impl->lane = std::move(lane).value();
  impl->dialer = std::move(*dialer);
  return std::unique_ptr<ControlClient>(new ControlClient(std::move(impl)));
}

ControlClient::ControlClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlClient::~ControlClient() = default;

SessionId ControlClient::connect(const HostPort& address, Duration deadline) {
  const SessionId session = impl_->lane->announce();
  const TimePoint until = now() + deadline;
  impl_->dialer->dial(
      address, until, [lane = impl_->lane.get(), session, until](Result<control::Dialed> dialed) {
        if (dialed.ok()) return lane->adopt(session, dialed->fd, dialed->peer, until);
        const bool late = dialed.error().code == ErrorCode::kDeadlineExceeded;
        lane->give_up(session, {late ? SessionEndKind::kDeadline : SessionEndKind::kUnreachable,
                                dialed.error().message});
      });
  return session;
}

Status ControlClient::send(SessionId session, const Envelope& envelope) {
  return impl_->lane->send(session, envelope);
}
void ControlClient::close(SessionId session, Duration deadline) {
  impl_->lane->close(session, deadline);
}
ControlStats ControlClient::stats() const { return impl_->lane->stats(); }
Status ControlClient::use(const Credentials& credentials) { return impl_->lane->use(credentials); }

}  // namespace troupe
