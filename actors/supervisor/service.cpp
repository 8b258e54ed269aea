#include "actors/supervisor/service.h"

#include <algorithm>

#include "actors/supervisor/tell_router.h"
#include "actors/supervisor/times.h"
#include "runtime/counted.h"

namespace troupe {

std::string_view to_string(ClusterState state) {
  switch (state) {
    case ClusterState::kForming:
      return "forming";
    case ClusterState::kLoading:
      return "loading";
    case ClusterState::kReady:
      return "ready";
    case ClusterState::kDegraded:
      return "degraded";
    case ClusterState::kStopping:
      return "stopping";
  }
  return "unknown";
}

std::string waiting_message(const Membership& members, const SupervisorOptions& options) {
  return "Waiting for devices: " + std::to_string(members.devices().size()) + " of " +
         std::to_string(std::max(1, options.engine.min_devices)) +
         " are here; to add a worker run: " + options.join_line;
}

namespace {

/// What those who ask for an answer are told. Addresses and paths are for the status.
std::string refusal(ClusterState state) {
  return "The cluster cannot serve yet: it is " + std::string(to_string(state)) +
         "; try again in a moment, or look at its status.";
}

}  // namespace

bool ServiceState::trouble(const Error& why) {
  if (trouble_ && trouble_->message == why.message) return false;
  trouble_ = why;
  return true;
}

void ServiceState::note(const PlacementVersions& versions, bool proven, SupervisorTurn& turn) {
  if (stopping()) return;
  const Placement* pending = versions.pending();
  const bool serves = versions.serves() && proven;
  const bool proving = versions.serves() && !proven;
  if (serves) {
    message_ = "Serving " + turn.options.model_name + " with " +
               counted(versions.active()->replicas.size(), "replica") + ".";
    if (state_ != ClusterState::kReady) {
      if (formed_) ++turn.counters.recoveries;
      turn.record(formed_ ? "recovered" : "ready", message_);
    }
    state_ = ClusterState::kReady;
    formed_ = true;
    unserved_since_.reset();
  } else {
    if (formed_ && !unserved_since_) unserved_since_ = turn.now;
    if (proving) {
      message_ = "Proving that the replicas compute what they should.";
      state_ = formed_ ? ClusterState::kDegraded : ClusterState::kLoading;
    } else if (pending) {
      message_ = "Loading version " + std::to_string(pending->version.value) + " of the placement.";
      state_ = ClusterState::kLoading;
    } else {
      message_ = trouble_ ? trouble_->message : waiting_message(turn.members, turn.options);
      state_ = formed_ || trouble_ ? ClusterState::kDegraded : ClusterState::kForming;
    }
  }
  count_replicas(serves ? versions.active()->replicas.size() : 0, turn);
  const bool soon =
      pending || proving || (unserved_since_ && turn.now - *unserved_since_ < kPatience);
  AdmissionChanged admission{serves || (formed_ && soon), {}};
  if (!admission.waits) admission.why = refusal(state_);
  if (admission == admission_) return;
  admission_ = admission;
  tell_router(std::move(admission), turn);
}

void ServiceState::count_replicas(std::size_t serving, SupervisorTurn& turn) {
  if (serving < replicas_) replicas_lost_ = std::max(replicas_lost_, replicas_);
  if (replicas_lost_ > 0 && serving >= replicas_lost_) {
    turn.record("restored", serving == 1 ? "The replica is back."
                                         : "All " + counted(serving, "replica") + " are back.");
    replicas_lost_ = 0;
  }
  replicas_ = serving;
}

void ServiceState::stop(const std::string& reason) {
  state_ = ClusterState::kStopping;
  message_ = "Stopping: " + reason;
}

void ServiceState::arrange_wake(TimePoint now, SupervisorEffects& effects) const {
  if (unserved_since_ && now < *unserved_since_ + kPatience)
    effects.wake_at(*unserved_since_ + kPatience);
}

std::string ServiceState::violation(const PlacementVersions& versions, bool proven) const {
  if (stopping()) return {};
  const bool serves = versions.serves() && proven;
  if ((state_ == ClusterState::kReady) != serves)
    return "The cluster is " + std::string(to_string(state_)) + " and " +
           (serves ? "serves." : "does not serve.");
  if (state_ == ClusterState::kLoading && !versions.pending() && !versions.serves())
    return "The cluster is loading, and no version loads.";
  if (state_ == ClusterState::kReady && !admission_.waits)
    return "The cluster serves, and requests may not wait.";
  return {};
}

}  // namespace troupe
