#pragma once

#include "actors/base/host.h"

namespace caf {
class actor_system;
}

namespace troupe {

/// The host of a process: each actor is a typed actor of CAF's scheduler, watched by one monitor
/// that tells of its end. Thread-safe.
class CafHost final : public Host {
 public:
  /// Both must outlive it.
  CafHost(caf::actor_system& system, Post& post);
  /// Ends the actors that are left, and waits for them.
  ~CafHost() override;

  caf::actor_system& system() { return system_; }

  TimePoint now() const override;
  void spawn(const Address& address, const Make& make, Mail ended) override;
  void end(const Address& address) override;
  /// Waits until it has ended, after end(); false when `deadline` passed first.
  bool wait_ended(const Address& address, Duration deadline);

  bool checks_invariants() const override;
  void broken(const Address& actor, const std::string& invariant) override;

 private:
  struct Monitor;
  caf::actor_system& system_;
  std::shared_ptr<Monitor> monitor_;  // shared with the lives of actors
};

}  // namespace troupe
