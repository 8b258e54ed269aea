#include <algorithm>
#include <cassert>

#include "actors/supervisor/supervisor.h"

// How a version of the placement comes into force, and what a loss takes out of it.

namespace troupe {
namespace {

constexpr std::size_t kPartsNamedMax = 8;
/// How long a member that could not load takes nothing new, if it may be able to later.
constexpr auto kClosedFor = std::chrono::seconds(30);
/// Whoever does not say by then that it is done with older versions is not waited for: an expert
/// that is asked for in vain is asked for elsewhere.
constexpr auto kSettleDeadline = limits::kStepDeadline;
std::string number_of(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// Another try may end otherwise, though nothing changes.
bool passing(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded ||
         code == ErrorCode::kCancelled || code == ErrorCode::kInternal;
}

std::set<NodeId> nodes_of(const Placement& placement) {
  std::set<NodeId> nodes;
  for (const auto& shard : placement.shards) nodes.insert(shard.device.node);
  for (const auto* layers : {&placement.experts, &placement.tier})
    for (const auto& layer : *layers)
      for (const auto& slot : layer.slots) nodes.insert(slot.device.node);
  return nodes;
}

}  // namespace

// --- Load ---------------------------------------------------------------------------------------

void Supervisor::load(Placement placement, TimePoint now, SupervisorActions& actions) {
  placement.version = PlacementVersion{next_version_++};
  ++counters_.placements;
  for (const auto& replica : placement.replicas) {
    const auto known = [&](const auto& r) { return r.id == replica.id; };
    if (!active_ || std::none_of(active_->replicas.begin(), active_->replicas.end(), known))
      next_replica_ = replica.id + 1;
  }
  pending_ = std::move(placement);
  trouble_.clear();
  loading_.clear();
  std::set<NodeId> concerned = nodes_of(*pending_);
  if (active_) concerned.merge(nodes_of(*active_));
  // Who has lost all of its part must hear that it may let go of it.
  concerned.insert(served_by_.begin(), served_by_.end());
  for (const NodeId node : concerned) {
    const auto it = members_.find(node);
    if (it == members_.end()) continue;
    loading_.insert(node);
    Member& member = it->second;
    member.loaded = false;
    member.load_done = 0;
    member.load_total = 0;
    member.load_deadline = now + limits::kLoadProgressDeadline;
  }
  if (!active_)
    record("placement",
           "Version " + std::to_string(pending_->version.value) + ": " +
               number_of(pending_->replicas.size(), "replica") + " over " +
               number_of(loading_.size(), "node") + ".",
           now, actions);
  for (const NodeId node : loading_) {
    const Member& member = members_.at(node);
    Load load{*pending_, options_.engine, {}};
    load.engine.numerics = numerics_;
    for (const NodeId other : loading_)
      if (other != node) load.peers.push_back(peer_of(member, members_.at(other)));
    actions.send(member_address(member), std::move(load));
  }
}

void Supervisor::on_load_progress(Member& member, const LoadProgress& progress, TimePoint now) {
  if (!pending_ || progress.version != pending_->version) return;
  if (progress.bytes_done > progress.bytes_total) {
    ++counters_.garbage;
    return;
  }
  if (progress.bytes_done > member.load_done) {
    member.load_deadline = now + limits::kLoadProgressDeadline;
  }
  member.load_done = std::max(member.load_done, progress.bytes_done);
  member.load_total = progress.bytes_total;
}

void Supervisor::on_loaded(Member& member, const Loaded& loaded, TimePoint now,
                           SupervisorActions& actions) {
  if (!pending_ || loaded.version != pending_->version || !loading_.contains(member.id)) return;
  member.loaded = true;
  const bool all = std::all_of(loading_.begin(), loading_.end(),
                               [&](NodeId node) { return members_.at(node).loaded; });
  if (all) activate(now, actions);
}

void Supervisor::on_load_failed(Member& member, const LoadFailed& failed, TimePoint now,
                                SupervisorActions& actions) {
  if (!pending_ || failed.version != pending_->version || !loading_.contains(member.id)) return;
  fail_load(member,
            {failed.error.code, to_string(member.id) + " on " + member.inventory.host +
                                    " could not load its part: " + failed.error.message},
            now, actions);
}

void Supervisor::check_loads(TimePoint now, SupervisorActions& actions) {
  for (auto& [id, member] : members_) {
    if (!member.closed_reason.empty() && now >= member.closed_until) {
      member.closed_reason.clear();
      change_goal(now);
    }
  }
  if (!settling_.empty() && now >= settle_deadline_) {
    settling_.clear();
    retire_if_settled(now, actions);
  }
  if (!pending_) return;
  for (const NodeId node : loading_) {
    Member& member = members_.at(node);
    if (member.loaded || now < member.load_deadline) continue;
    fail_load(member,
              resource_exhausted(to_string(node) + " on " + member.inventory.host +
                                 " made no progress with its load; look at its log."),
              now, actions);
    return;
  }
}

/// The version is given up; what serves goes on. Who cannot take its part is given nothing new for
/// a while.
void Supervisor::fail_load(Member& member, const Error& error, TimePoint now,
                           SupervisorActions& actions) {
  pending_.reset();
  loading_.clear();
  change_goal(now);
  if (passing(error.code)) {
    const auto again = std::chrono::duration_cast<std::chrono::milliseconds>(retry_backoff_);
    record("load_failed",
           error.message + " Trying again in " + std::to_string(again.count()) + " ms.", now,
           actions);
    retry_at_ = now + retry_backoff_;
    retry_backoff_ = std::min<Duration>(retry_backoff_ * 2, limits::kLoadRetryMax);
  } else {
    record("load_failed", error.message, now, actions);
    member.closed_reason = error.message;
    member.closed_until = now + kClosedFor;
  }
  if (!active_ || !serves_) trouble_ = error.message;
  consider(now, actions);
}

// --- Activate, retire ---------------------------------------------------------------------------

void Supervisor::activate(TimePoint now, SupervisorActions& actions) {
  served_by_ = nodes_of(*pending_);
  set_active(std::move(*pending_));
  pending_.reset();
  retire_due_ = true;
  settling_ = std::exchange(loading_, {});
  settle_deadline_ = now + kSettleDeadline;
  retry_backoff_ = limits::kLoadRetryMin;
  for (const NodeId node : settling_) {
    Member& member = members_.at(node);
    if (member.state == MemberState::kJoining) member.state = MemberState::kReady;
    actions.send(member_address(member), Activate{active_->version});
  }
  tell_router(actions);
  report_operations(now, actions);
  note_state(now, actions);
}

void Supervisor::on_activated(const Member& member, PlacementVersion version, TimePoint now,
                              SupervisorActions& actions) {
  if (!active_ || version != active_->version) return;
  settling_.erase(member.id);
  retire_if_settled(now, actions);
}

void Supervisor::retire_if_settled(TimePoint now, SupervisorActions& actions) {
  if (!settling_.empty() || !std::exchange(retire_due_, false)) return;
  for (auto& [id, member] : members_)
    actions.send(member_address(member), Retire{active_->version});
  report_operations(now, actions);
  consider(now, actions);
}

void Supervisor::tell_router(SupervisorActions& actions) const {
  SupervisorActions::ReplicasChanged change{active_->version, {}};
  for (const auto& replica : active_->replicas) {
    const auto it = members_.find(replica.node);
    if (it == members_.end()) continue;
    const bool slow = std::any_of(
        active_->shards.begin(), active_->shards.end(),
        [&](const auto& s) { return s.replica == replica.id && slow_.contains(s.device); });
    change.replicas.push_back(
        {replica.id,
         {replica.node, it->second.incarnation, {ActorKind::kReplica, replica.id}},
         replica.kv_blocks,
         slow});
  }
  actions.replicas_changed = std::move(change);
}

// --- Losses -------------------------------------------------------------------------------------

/// Takes out of the placement what lies on devices that are no longer here.
void Supervisor::lose_devices(const std::string& why, TimePoint now, SupervisorActions& actions) {
  change_goal(now + kGoalDelay);
  retry_at_.reset();
  const auto devices = devices_here();
  const auto here = [&](const Placement& placement) {
    return same_parts(placement, living_part(placement, devices));
  };
  if (pending_ && !here(*pending_)) {
    pending_.reset();
    loading_.clear();
  }
  if (!active_) return;
  Placement living = living_part(*active_, devices);
  std::vector<std::uint32_t> lost;
  for (const auto& replica : active_->replicas) {
    const auto same = [&](const auto& r) { return r.id == replica.id; };
    if (std::none_of(living.replicas.begin(), living.replicas.end(), same))
      lost.push_back(replica.id);
  }
  set_active(std::move(living));
  if (!lost.empty()) {
    if (!actions.replicas_lost) actions.replicas_lost.emplace();
    auto& all = actions.replicas_lost->replicas;
    all.insert(all.end(), lost.begin(), lost.end());
    actions.replicas_lost->why = why;
    tell_router(actions);
  }
}

bool Supervisor::same_parts(const Placement& a, const Placement& b) {
  return a.replicas == b.replicas && a.shards == b.shards && a.experts == b.experts &&
         a.tier == b.tier;
}

const ModelCosts& Supervisor::model() const {
  assert(numerics_);
  if (!model_) model_ = options_.costs(*numerics_);
  return *model_;
}

void Supervisor::set_active(Placement placement) {
  active_ = std::move(placement);
  serves_ = can_serve(*active_, model());
  survival_.reset();
}

/// Where the placement should get to is thought over again.
void Supervisor::change_goal(TimePoint not_before) {
  goal_.reset();
  goal_reached_ = false;
  survival_.reset();
  improve_at_ = std::max(improve_at_, not_before);
}

/// What people and the Router are told: whether it serves, and what it waits for if not.
void Supervisor::note_state(TimePoint now, SupervisorActions& actions) {
  if (state_ == ClusterState::kStopping) return;
  const bool serving = serves_;
  if (serving) {
    const std::string text = "Serving " + options_.model_name + " with " +
                             number_of(active_->replicas.size(), "replica") + ".";
    if (state_ != ClusterState::kReady) {
      if (formed_) ++counters_.recoveries;
      record(formed_ ? "recovered" : "ready", text, now, actions);
    }
    state_ = ClusterState::kReady;
    formed_ = true;
    unserved_since_.reset();
    message_ = text;
  } else {
    if (formed_ && !unserved_since_) unserved_since_ = now;
    if (pending_) {
      message_ =
          "Loading version " + std::to_string(pending_->version.value) + " of the placement.";
      state_ = ClusterState::kLoading;
    } else if (formed_ || !trouble_.empty()) {
      message_ = trouble_.empty() ? waiting_message() : trouble_;
      state_ = ClusterState::kDegraded;
    } else {
      message_ = waiting_message();
      state_ = ClusterState::kForming;
    }
  }
  const bool soon = pending_ || (unserved_since_ && now - *unserved_since_ < kPatience);
  SupervisorActions::Admission admission{serving || (formed_ && soon), message_};
  if (admission.waits) admission.why.clear();
  if (admission == admission_) return;
  admission_ = admission;
  actions.admission = std::move(admission);
}

std::vector<std::string> Supervisor::parts_on(NodeId node) const {
  std::vector<std::string> parts;
  std::size_t shards = 0;
  for (const auto& shard : active_->shards) {
    if (shard.device.node != node || ++shards > kPartsNamedMax) continue;
    parts.push_back("layers " + std::to_string(shard.first_layer) + "-" +
                    std::to_string(shard.last_layer) + " of replica " +
                    std::to_string(shard.replica));
  }
  if (shards > kPartsNamedMax) parts.push_back(number_of(shards - kPartsNamedMax, "more shard"));
  std::size_t here = 0, only_here = 0;
  for (const auto& layer : active_->experts) {
    std::map<std::int32_t, std::pair<bool, bool>> copies;  // here, elsewhere
    for (const auto& slot : layer.slots) {
      auto& copy = copies[slot.expert];
      (slot.device.node == node ? copy.first : copy.second) = true;
      here += slot.device.node == node ? 1 : 0;
    }
    for (const auto& [expert, copy] : copies) only_here += copy.first && !copy.second ? 1 : 0;
  }
  if (here > 0)
    parts.push_back(
        (here == 1 ? "1 copy of an expert" : std::to_string(here) + " copies of experts") + ", " +
        std::to_string(only_here) + " of them without another");
  return parts;
}

// --- The end ------------------------------------------------------------------------------------

void Supervisor::stop(std::string reason, TimePoint now, SupervisorActions& actions) {
  if (state_ == ClusterState::kStopping) return;
  state_ = ClusterState::kStopping;
  pending_.reset();
  retry_at_.reset();
  message_ = "Stopping: " + reason;
  actions.requests_end = "The cluster is stopping.";
  record("stopping", message_, now, actions);
  for (const auto& [id, member] : members_) actions.send(member_address(member), Stop{reason});
  stop_deadline_ = now + limits::kStopDeadline;
  finish_stop(now, actions);
  wake(now, actions);
}

void Supervisor::finish_stop(TimePoint now, SupervisorActions& actions) {
  if (!stop_deadline_) return;
  if (!members_.empty() && now < *stop_deadline_) return;
  for (const auto& [number, session] : sessions_) close(number, "The cluster ends.", actions);
  const bool nobody_serves =
      members_.empty() && std::all_of(gone_.begin(), gone_.end(), [&](const Member& m) {
        return now - m.last_renew >= limits::kLease;
      });
  // Everyone is known to have ended: the next life may count from 1 again.
  if (nobody_serves) actions.keep_next_node = 1;
  stop_deadline_.reset();
  actions.stop_self = true;
}

}  // namespace troupe
