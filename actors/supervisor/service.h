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

  /// No plan could be made (kResourceExhausted: it does not fit, kInvalidArgument), or it could not
  /// be loaded (kUnavailable). False if that is known.
  bool trouble(const Error& why);
  const std::optional<Error>& trouble() const { return trouble_; }
  /// Another plan is under way.
  void no_trouble() { trouble_.reset(); }
  /// After anything that may have changed it. Tells the Router when requests may not wait, or may.
  /// `proven`: a replica has given the canary's tokens.
  void note(const PlacementVersions& versions, bool proven, SupervisorTurn& turn);
  void stop(const std::string& reason);

  void arrange_wake(TimePoint now, SupervisorEffects& effects) const;
  std::string violation(const PlacementVersions& versions, bool proven) const;

 private:
  void count_replicas(std::size_t serving, SupervisorTurn& turn);

  ClusterState state_ = ClusterState::kForming;
  std::string message_;
  bool formed_ = false;  ///< has served once
  std::optional<TimePoint> unserved_since_;
  std::optional<Error> trouble_;
  std::size_t replicas_ = 0;      ///< that serve
  std::size_t replicas_lost_ = 0;  ///< how many served before some were lost; 0: none is missing
  AdmissionChanged admission_;  ///< as the Router heard last
};

/// What is missing before the first version.
std::string waiting_message(const Membership& members, const SupervisorOptions& options);

}  // namespace troupe
