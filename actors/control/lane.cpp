#include "actors/control/lane.h"

#include "actors/control/lane_core.h"

namespace troupe::control {

Result<std::unique_ptr<Lane>> Lane::start(caf::actor_system& system, const Credentials& credentials,
                                          TlsSide side, ControlEvents& events,
                                          const ControlOptions& options) {
  const bool desk = options.enrol != nullptr;
  auto context = TlsContext::make(credentials, side, desk);
  if (!context.ok()) return context.error();
  auto core = std::make_shared<LaneCore>(system, *context, events, options);
  core->start();
  return std::unique_ptr<Lane>(new Lane(std::move(core), side, desk));
}

Lane::Lane(std::shared_ptr<LaneCore> core, TlsSide side, bool desk)
    : core_(std::move(core)), side_(side), desk_(desk) {}
Lane::~Lane() { core_->stop(); }

void Lane::listen(int fd) {
  core_->post([core = core_.get(), fd] { core->listen(fd); });
}

SessionId Lane::announce() {
  const SessionId session = core_->next_session();
  core_->post([core = core_.get(), session] { core->announce(session); });
  return session;
}

void Lane::adopt(SessionId session, int fd, std::string peer, TimePoint deadline) {
  core_->post([core = core_.get(), session, fd, peer = std::move(peer), deadline] {
    core->adopt(session, fd, peer, deadline);
  });
}

void Lane::give_up(SessionId session, SessionEnd end) {
  core_->post([core = core_.get(), session, end = std::move(end)] { core->give_up(session, end); });
}

Status Lane::send(SessionId session, const Envelope& envelope) {
  return core_->send(session, envelope);
}

void Lane::close(SessionId session, Duration deadline) {
  core_->post(
      [core = core_.get(), session, until = now() + deadline] { core->close(session, until); });
}

Status Lane::use(const Credentials& credentials) {
  auto context = TlsContext::make(credentials, side_, desk_);
  if (!context.ok()) return context.error();
  core_->post([core = core_.get(), context = std::move(*context)] { core->use(context); });
  return {};
}

ControlStats Lane::stats() const { return core_->stats(); }

}  // namespace troupe::control
