#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "actors/control/control_lane.h"

namespace troupe {

/// The control lane of a machine that is sought: a head, if it listens, or a standby. Thread-safe.
class ServerLane final : public SessionLane {
 public:
  Status listen(caf::actor_system& system, const HostPort& address, const Credentials& credentials,
                const EnrolmentDoor& enrol, ControlEvents& events) {
    // Sessions may come up before listen() returns: their answers wait for it.
    std::unique_lock lock(mutex_);
    auto server = ControlServer::listen(system, address, credentials, events, {.enrol = enrol});
    if (!server.ok()) return server.error();
    server_ = std::move(*server);
    return {};
  }
  /// For sessions that begin from now on.
  Status use(const Credentials& credentials) {
    std::shared_lock lock(mutex_);
    return server_ ? server_->use(credentials) : Status();
  }
  /// No event comes after it.
  void end() {
    std::unique_ptr<ControlServer> server;
    std::unique_lock lock(mutex_);
    server.swap(server_);
    lock.unlock();
  }
  Status send(std::uint32_t session, const Envelope& envelope) override {
    std::shared_lock lock(mutex_);
    return server_ ? server_->send(session, envelope) : unavailable("The session has ended.");
  }
  void close(std::uint32_t session, const std::string& reason) override {
    std::shared_lock lock(mutex_);
    if (server_) server_->close(session, reason);
  }
  std::uint16_t port() const {
    std::shared_lock lock(mutex_);
    return server_ ? server_->port() : std::uint16_t{0};
  }
  ControlStats stats() const {
    std::shared_lock lock(mutex_);
    return server_ ? server_->stats() : ControlStats{};
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unique_ptr<ControlServer> server_;  // guarded by mutex_
};

}  // namespace troupe
