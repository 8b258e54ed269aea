#include <algorithm>
#include <cassert>

#include "actors/supervisor/supervisor.h"

// The placement and its versions: when there are enough devices, what each member shall load, and
// what happens when it cannot.

namespace troupe {
namespace {

constexpr std::size_t kPartsNamedMax = 8;

std::string number_of(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// Another try may end otherwise, though nothing changes.
bool passing(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kCancelled:
    case ErrorCode::kInternal:
      return true;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
    case ErrorCode::kRefused:
    case ErrorCode::kResourceExhausted:
      return false;
  }
  return false;
}

std::set<NodeId> nodes_of(const Placement& placement) {
  std::set<NodeId> nodes;
  for (const auto& shard : placement.shards) nodes.insert(shard.device.node);
  for (const auto& layer : placement.experts) {
    for (const auto& slot : layer.slots) nodes.insert(slot.device.node);
  }
  return nodes;
}

}  // namespace

std::size_t Supervisor::devices_here() const {
  std::size_t devices = 0;
  for (const auto& [id, member] : members_) devices += member.inventory.devices.size();
  return devices;
}

std::string Supervisor::waiting_message() const {
  return "Waiting for devices: " + std::to_string(devices_here()) + " of " +
         std::to_string(std::max(1, options_.engine.min_devices)) +
         " are here; to add a worker run: " + options_.join_line;
}

void Supervisor::consider(TimePoint now, SupervisorActions& actions) {
  if (state_ == ClusterState::kStopping) {
    finish_stop(now, actions);
    return;
  }
  if (placement_lives()) return;  // who comes now is there for the next version
  retry_at_.reset();
  if (devices_here() >= static_cast<std::size_t>(std::max(1, options_.engine.min_devices))) {
    plan(now, actions);
  } else {
    message_ = (trouble_.empty() ? "" : trouble_ + " ") + waiting_message();
  }
}

PlacementInput Supervisor::plan_input() const {
  PlacementInput input;
  for (const auto& [id, member] : members_) {
    for (std::size_t i = 0; i < member.inventory.devices.size(); ++i) {
      const auto& device = member.inventory.devices[i];
      input.devices.push_back(
          {{id, static_cast<std::uint32_t>(i)}, device.kind, device.memory_total});
    }
  }
  assert(numerics_);
  input.model = options_.costs(*numerics_);
  input.engine = options_.engine;
  input.numerics = *numerics_;
  input.version = PlacementVersion{next_version_};
  return input;
}

void Supervisor::plan(TimePoint now, SupervisorActions& actions) {
  if (!numerics_) {
    numerics_ = common_numerics();
    assert(numerics_);  // check_join() lets nobody in who has none in common with the others
    record("numerics", "The cluster computes with " + std::string(to_string(*numerics_)) + ".", now,
           actions);
  }
  Result<Placement> placement = plan_placement(plan_input());
  if (!placement) {
    state_ = ClusterState::kDegraded;
    const bool said = trouble_ == placement.error().message;
    trouble_ = placement.error().message;
    message_ = trouble_;
    if (!said) record("degraded", trouble_, now, actions);
    return;
  }
  ++next_version_;
  ++counters_.placements;
  placement_ = std::move(*placement);
  used_ = nodes_of(*placement_);
  state_ = ClusterState::kLoading;
  message_ = "Loading version " + std::to_string(placement_->version.value) + " of the placement.";
  for (auto& [id, member] : members_) {
    member.loaded = false;
    member.load_done = 0;
    member.load_total = 0;
    member.load_deadline = now + limits::kLoadProgressDeadline;
    member.replicas.clear();
    member.state = uses(id) ? MemberState::kJoining : MemberState::kReady;
  }
  record("placement",
         "Version " + std::to_string(placement_->version.value) + ": " +
             number_of(placement_->replicas.size(), "replica") + " over " +
             number_of(used_.size(), "node") + ".",
         now, actions);
  send_load(actions);
}

const FabricToken& Supervisor::token_between(const Member& a, const Member& b) {
  const auto key = std::minmax(a.incarnation, b.incarnation);
  const auto [it, is_new] = tokens_.try_emplace({key.first, key.second});
  if (is_new) options_.random(it->second);
  return it->second;
}

void Supervisor::send_load(SupervisorActions& actions) {
  for (const NodeId node : used_) {
    const Member& member = members_.at(node);
    Load load{*placement_, options_.engine, {}};
    load.engine.numerics = numerics_;
    for (const NodeId other : used_) {
      if (other == node) continue;
      const Member& peer = members_.at(other);
      load.peers.push_back(
          {peer.id, peer.incarnation, peer.inventory.fabric_address, token_between(member, peer)});
    }
    actions.send(member_address(member), std::move(load));
  }
}

// --- Loading ------------------------------------------------------------------------------------

void Supervisor::on_load_progress(Member& member, const LoadProgress& progress, TimePoint now) {
  if (state_ != ClusterState::kLoading || progress.version != placement_->version) return;
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
  if (state_ != ClusterState::kLoading || loaded.version != placement_->version) return;
  if (!uses(member.id)) return;
  member.loaded = true;
  member.state = MemberState::kReady;
  const bool all = std::all_of(used_.begin(), used_.end(),
                               [&](NodeId node) { return members_.at(node).loaded; });
  if (all) activate(now, actions);
}

void Supervisor::activate(TimePoint now, SupervisorActions& actions) {
  SupervisorActions::ReplicasChanged change{placement_->version, {}};
  for (const NodeId node : used_) {
    actions.send(member_address(members_.at(node)), Activate{placement_->version});
  }
  for (const auto& replica : placement_->replicas) {
    const Member& member = members_.at(replica.node);
    change.replicas.push_back({replica.id,
                               {member.id, member.incarnation, {ActorKind::kReplica, replica.id}},
                               replica.kv_blocks});
  }
  actions.replicas_changed = std::move(change);
  state_ = ClusterState::kReady;
  message_ = "Serving " + options_.model_name + " with " +
             number_of(placement_->replicas.size(), "replica") + ".";
  trouble_.clear();
  lost_parts_.clear();
  retry_backoff_ = limits::kLoadRetryMin;
  record("ready", message_, now, actions);
}

void Supervisor::on_load_failed(const Member& member, const LoadFailed& failed, TimePoint now,
                                SupervisorActions& actions) {
  if (state_ != ClusterState::kLoading || failed.version != placement_->version) return;
  if (!uses(member.id)) return;
  fail_load({failed.error.code, to_string(member.id) + " on " + member.inventory.host +
                                    " could not load its part: " + failed.error.message},
            now, actions);
}

void Supervisor::check_loads(TimePoint now, SupervisorActions& actions) {
  if (state_ != ClusterState::kLoading) return;
  for (const NodeId node : used_) {
    const Member& member = members_.at(node);
    if (member.loaded || now < member.load_deadline) continue;
    fail_load(deadline_exceeded(to_string(node) + " on " + member.inventory.host +
                                " made no progress with its load; look at its log."),
              now, actions);
    return;
  }
}

/// Steps fail for as long as two members that serve cannot reach each other: the version is given
/// up, and the next one makes their connection anew.
void Supervisor::check_broken_link(TimePoint now, SupervisorActions& actions) {
  if (!broken_link_ || now < broken_link_->due) return;
  const BrokenLink link = std::move(*broken_link_);
  broken_link_.reset();
  const auto lives = [&](NodeId node, Incarnation life) {
    const auto it = members_.find(node);
    return it != members_.end() && it->second.incarnation == life && uses(node);
  };
  if (state_ != ClusterState::kReady || !lives(link.reporter, link.reporter_life) ||
      !lives(link.peer, link.peer_life))
    return;
  fail_load(unavailable(to_string(link.reporter) + " and " + to_string(link.peer) +
                        " cannot reach each other: " + link.reason + "."),
            now, actions);
}

void Supervisor::fail_load(const Error& error, TimePoint now, SupervisorActions& actions) {
  if (!passing(error.code)) {
    abandon(error, now, actions);
    return;
  }
  const auto again = std::chrono::duration_cast<std::chrono::milliseconds>(retry_backoff_);
  abandon(
      {error.code, error.message + " Trying again in " + std::to_string(again.count()) + " ms."},
      now, actions);
  retry_at_ = now + retry_backoff_;
  retry_backoff_ = std::min<Duration>(retry_backoff_ * 2, limits::kLoadRetryMax);
}

/// The version is over: nobody serves it any more, the weights stay where they are.
void Supervisor::abandon(const Error& error, TimePoint now, SupervisorActions& actions) {
  assert(placement_lives());
  for (const NodeId node : used_) {
    const auto it = members_.find(node);
    if (it == members_.end()) continue;
    it->second.state = MemberState::kReady;
    it->second.replicas.clear();
    actions.send(member_address(it->second), Deactivate{placement_->version});
  }
  if (state_ == ClusterState::kReady) actions.replicas_lost = {placement_->version, error};
  state_ = ClusterState::kDegraded;
  trouble_ = error.message;
  message_ = trouble_;
  record("degraded", trouble_, now, actions);
}

std::vector<std::string> Supervisor::parts_on(NodeId node) const {
  std::vector<std::string> parts;
  std::size_t shards = 0;
  for (const auto& shard : placement_->shards) {
    if (shard.device.node != node || ++shards > kPartsNamedMax) continue;
    parts.push_back("layers " + std::to_string(shard.first_layer) + "-" +
                    std::to_string(shard.last_layer) + " of replica " +
                    std::to_string(shard.replica));
  }
  if (shards > kPartsNamedMax) {
    parts.push_back(number_of(shards - kPartsNamedMax, "more shard"));
  }
  std::size_t here = 0, only_here = 0;
  for (const auto& layer : placement_->experts) {
    std::map<std::int32_t, std::pair<bool, bool>> copies;  // here, elsewhere
    for (const auto& slot : layer.slots) {
      auto& copy = copies[slot.expert];
      (slot.device.node == node ? copy.first : copy.second) = true;
      here += slot.device.node == node ? 1 : 0;
    }
    for (const auto& [expert, copy] : copies) only_here += copy.first && !copy.second ? 1 : 0;
  }
  if (here > 0) {
    parts.push_back(here == 1 ? "1 copy of an expert"
                              : std::to_string(here) + " copies of experts");
    parts.back() += ", " + std::to_string(only_here) + " of them without another";
  }
  return parts;
}

// --- The end ------------------------------------------------------------------------------------

void Supervisor::stop(std::string reason, TimePoint now, SupervisorActions& actions) {
  if (state_ == ClusterState::kStopping) return;
  if (state_ == ClusterState::kReady) {
    actions.replicas_lost = {placement_->version, unavailable("The cluster is stopping.")};
  }
  state_ = ClusterState::kStopping;
  retry_at_.reset();
  message_ = "Stopping: " + reason;
  record("stopping", message_, now, actions);
  for (const auto& [id, member] : members_) actions.send(member_address(member), Stop{reason});
  stop_deadline_ = now + limits::kStopDeadline;
  finish_stop(now, actions);
  wake(actions);
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
