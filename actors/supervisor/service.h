#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "actors/supervisor/versions.h"

namespace troupe {

enum class ClusterState : std::uint8_t { kForming, kLoading, kReady, kDegraded, kStopping };
std::string_view to_string(ClusterState state);

/// What people and the Router hear: whether the cluster serves, and what it waits for if not.
///
///     forming ─► loading ─► ready ─► degraded ─► loading ─► ready ...      any ─► stopping
class ServiceState {
 public:
  explicit ServiceState(std::string message) : message_(std::move(message)) {}

  ClusterState state() const { return state_; }
  bool stopping() const { return state_ == ClusterState::kStopping; }
  const std::string& message() const { return message_; }

  /// No plan could be made, or it could not be loaded. False if that is known.
  bool trouble(const std::string& why);
  /// Another plan is under way.
  void no_trouble() { trouble_.clear(); }
  /// After anything that may have changed it. Tells the Router when requests may not wait, or may.
  void note(const PlacementVersions& versions, SupervisorTurn& turn);
  void stop(const std::string& reason);

  void arrange_wake(TimePoint now, SupervisorEffects& effects) const;
  std::string violation(const PlacementVersions& versions) const;

 private:
  ClusterState state_ = ClusterState::kForming;
  std::string message_;
  bool formed_ = false;  ///< has served once
  std::optional<TimePoint> unserved_since_;
  std::string trouble_;
  AdmissionChanged admission_;  ///< as the Router heard last
};

/// What is missing before the first version.
std::string waiting_message(const Membership& members, const SupervisorOptions& options);

}  // namespace troupe
