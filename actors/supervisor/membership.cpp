#include <algorithm>
#include <cassert>
#include <cmath>

#include "actors/supervisor/check_inventory.h"
#include "actors/supervisor/supervisor.h"

// Who is in: joining, leases, reports, losses.

namespace troupe {
namespace {

constexpr std::uint32_t kHeldIdMax = 1u << 30;
constexpr std::size_t kTextBytesMax = 4096;

}  // namespace

// --- Members ------------------------------------------------------------------------------------

Status Supervisor::check_join(const Join& join) const {
  if (state_ == ClusterState::kStopping) return unavailable("The cluster is stopping.");
  if (Status s = check_protocol(join.protocol); !s) return s;
  if (join.checkpoint_hash != options_.checkpoint_hash) {
    return refused("Its checkpoint is another one than the head's at " + options_.model_path +
                   "; give it the same files, or --model with the folder that has them.");
  }
  if (Status s = check_inventory(join); !s) return s;
  const auto has = [&](Numerics n) {
    return std::find(join.numerics.begin(), join.numerics.end(), n) != join.numerics.end();
  };
  if (numerics_ && !has(*numerics_)) {
    return refused("Its processor cannot run the cluster's numerics " +
                   std::string(to_string(*numerics_)) + " (it has " + list_of(join.numerics) +
                   "); start the head with --numerics that every worker has.");
  }
  if (!numerics_) {
    bool meets = !join.numerics.empty();
    if (!members_.empty()) {
      meets = std::any_of(join.numerics.begin(), join.numerics.end(), [&](Numerics n) {
        return std::all_of(members_.begin(), members_.end(), [&](const auto& m) {
          const auto& theirs = m.second.inventory.numerics;
          return std::find(theirs.begin(), theirs.end(), n) != theirs.end();
        });
      });
    }
    if (!meets) {
      return refused("It has no numerics in common with the other workers (it has " +
                     list_of(join.numerics) + "); run the same version of troupe everywhere.");
    }
  }
  if (members_.size() >= limits::kNodesMax) {
    return resource_exhausted("The cluster has " + std::to_string(limits::kNodesMax) +
                              " workers, as many as it may.");
  }
  return {};
}

std::optional<Numerics> Supervisor::common_numerics() const {
  std::optional<Numerics> fastest;
  for (int i = 0; i < kNumericsCount; ++i) {
    const auto family = static_cast<Numerics>(i);  // slowest first
    const bool common = std::all_of(members_.begin(), members_.end(), [&](const auto& m) {
      const auto& theirs = m.second.inventory.numerics;
      return std::find(theirs.begin(), theirs.end(), family) != theirs.end();
    });
    if (common && !members_.empty()) fastest = family;
  }
  return fastest;
}

NodeId Supervisor::choose_id(const Join& join, TimePoint now, SupervisorActions& actions) {
  const NodeId held = join.held_id;
  if (held.value != 0 && held.value < kHeldIdMax && join.held_cluster == options_.cluster_id) {
    const auto it = members_.find(held);
    const bool same_process = it != members_.end() && it->second.inventory.host == join.host &&
                              it->second.inventory.pid == join.pid;
    if (same_process) {
      // Its machine ended its old life before it sought the head again.
      remove_member(held, "it came back with a new connection", false, now, actions);
    }
    if (same_process || it == members_.end()) {
      next_node_ = std::max(next_node_, held.value + 1);
      return held;
    }
  }
  while (members_.contains(NodeId{next_node_})) ++next_node_;
  return NodeId{next_node_++};
}

void Supervisor::on_join(std::uint32_t session, const Join& join, TimePoint now,
                         SupervisorActions& actions) {
  if (Status s = check_join(join); !s) {
    refuse_session(session, s.error(), now, actions);
    return;
  }
  const std::uint32_t next_before = next_node_;
  const NodeId id = choose_id(join, now, actions);
  if (next_node_ != next_before) actions.keep_next_node = next_node_;
  std::erase_if(gone_, [&](const Member& m) { return m.id == id; });
  Member& member = members_[id];
  member.id = id;
  member.incarnation = Incarnation{next_incarnation_++};
  member.session = session;
  member.inventory = join;
  member.joined = now;
  member.last_renew = now;
  member.devices.resize(join.devices.size());
  sessions_.at(session).member = id;
  ++counters_.joined;
  actions.bind_sessions.push_back({session, id, member.incarnation});
  const auto lease = std::chrono::duration_cast<std::chrono::milliseconds>(limits::kLease);
  actions.send(member_address(member),
               Welcome{id, member.incarnation, static_cast<std::uint32_t>(lease.count())});
  record("node_joined",
         to_string(id) + " joined: process " + std::to_string(join.pid) + " on " + join.host +
             " with " + std::to_string(join.devices.size()) +
             (join.devices.size() == 1 ? " device." : " devices."),
         now, actions);
  if (!slow_.empty()) actions.send(member_address(member), Avoid{{slow_.begin(), slow_.end()}});
  change_goal(now);
  retry_at_.reset();
  improve_at_ = std::max(improve_at_, now + kGoalDelay);
  consider(now, actions);
}

void Supervisor::on_member(Member& member, const Envelope& envelope, TimePoint now,
                           SupervisorActions& actions) {
  const Message& message = *envelope.message;
  const NodeId id = member.id;
  if (const auto* renew = std::get_if<Renew>(&message)) {
    on_renew(member, *renew, now, actions);
  } else if (const auto* progress = std::get_if<LoadProgress>(&message)) {
    on_load_progress(member, *progress, now);
  } else if (const auto* loaded = std::get_if<Loaded>(&message)) {
    on_loaded(member, *loaded, now, actions);
  } else if (const auto* failed = std::get_if<LoadFailed>(&message)) {
    on_load_failed(member, *failed, now, actions);
  } else if (const auto* activated = std::get_if<Activated>(&message)) {
    on_activated(member, activated->version, now, actions);
  } else if (const auto* counts = std::get_if<ExpertCounts>(&message)) {
    on_expert_counts(*counts, now, actions);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    remove_member(id, leave->reason.substr(0, kTextBytesMax), true, now, actions);
    consider(now, actions);
  } else if (const auto* peer = std::get_if<PeerUnreachable>(&message)) {
    on_unreachable(member, *peer, now, actions);
  } else {
    ++counters_.garbage;
    refuse_message(envelope, "The Supervisor does not take that message from a worker.", actions);
  }
}

void Supervisor::on_renew(Member& member, const Renew& renew, TimePoint now,
                          SupervisorActions& actions) {
  if (renew.sequence <= member.last_sequence) {
    ++counters_.garbage;
    return;
  }
  member.last_sequence = renew.sequence;
  member.last_renew = now;
  actions.send(member_address(member), Renewed{renew.sequence});
  const bool sane = renew.devices.size() == member.devices.size() &&
                    std::all_of(renew.devices.begin(), renew.devices.end(), [](const auto& d) {
                      return std::isfinite(d.utilization) && d.utilization >= 0 &&
                             d.memory_used <= kDeviceBytesMax;
                    });
  if (!sane) {
    ++counters_.garbage;
    return;
  }
  bool failed = false;
  for (std::size_t i = 0; i < renew.devices.size(); ++i)
    failed = failed || (member.devices[i].failed.empty() && !renew.devices[i].failed.empty());
  member.devices = renew.devices;
  for (auto& d : member.devices) d.utilization = std::min(d.utilization, 1.0f);
  member.replicas.clear();
  for (const auto& report : renew.replicas) {
    const auto its_own = [&](const ReplicaPlacement& r) {
      return r.id == report.replica && r.node == member.id;
    };
    const auto in = [&](const Placement* p) {
      return p && std::any_of(p->replicas.begin(), p->replicas.end(), its_own);
    };
    if (in(active()) || in(pending())) member.replicas.push_back(report);
  }
  for (std::size_t i = 0; i < renew.devices.size(); ++i)
    speeds_[{member.id, static_cast<std::uint32_t>(i)}].add(renew.devices[i].probe_us);
  check_speed(now, actions);
  if (failed) on_device_failed(member, now, actions);
}

/// The device is taken out, the node stays.
void Supervisor::on_device_failed(const Member& member, TimePoint now, SupervisorActions& actions) {
  std::string why;
  for (std::size_t i = 0; i < member.devices.size(); ++i)
    if (!member.devices[i].failed.empty())
      why = to_string(DeviceRef{member.id, static_cast<std::uint32_t>(i)}) +
            " failed: " + member.devices[i].failed.substr(0, kTextBytesMax);
  record("device_failed", why, now, actions);
  lose_devices(why, now, actions);
  consider(now, actions);
}

void Supervisor::on_expert_counts(const ExpertCounts& counts, TimePoint now,
                                  SupervisorActions& actions) {
  if (!numerics_) return;
  expert_load_.add(counts, model(), now);
  actions.counted = counts;
}

/// A device is slow when it is far from its best and from what the others are from theirs: a
/// machine that is busy all over slows everyone down.
void Supervisor::check_speed(TimePoint now, SupervisorActions& actions) {
  std::map<DeviceRef, double> slowdowns;
  for (const auto& [device, watch] : speeds_)
    if (const auto s = watch.slowdown()) slowdowns[device] = *s;
  const std::set<DeviceRef> before = slow_;
  for (const auto& [device, slowdown] : slowdowns) {
    std::vector<double> others;
    for (const auto& [other, s] : slowdowns)
      if (other != device) others.push_back(s);
    if (others.empty()) continue;
    std::nth_element(others.begin(), others.begin() + others.size() / 2, others.end());
    const double usual = others[others.size() / 2];
    SpeedWatch& watch = speeds_.at(device);
    if (slowdown >= SpeedWatch::kSlow * std::max(1.0, usual / SpeedWatch::kFine)) {
      if (!watch.slow_since) watch.slow_since = now;
      if (now - *watch.slow_since < kSlowAfter) continue;
      if (slow_.insert(device).second) {
        record("device_slow",
               to_string(device) + " takes " + std::to_string(static_cast<int>(slowdown)) +
                   " times as long as at its best; others are asked instead where they can be.",
               now, actions);
      }
      if (!watch.drained && now - *watch.slow_since >= kSlowDrainAfter) {
        watch.drained = true;
        change_goal(now);
      }
    } else if (!slow_.contains(device)) {
      watch.slow_since.reset();
    } else if (slowdown <= SpeedWatch::kFine * std::max(1.0, usual)) {
      slow_.erase(device);
      watch.slow_since.reset();
      if (std::exchange(watch.drained, false)) change_goal(now);
      record("device_slow", to_string(device) + " is as fast as it was again.", now, actions);
    }
  }
  if (slow_ == before) return;
  for (const auto& [id, member] : members_)
    actions.send(member_address(member), Avoid{{slow_.begin(), slow_.end()}});
  if (active_) tell_router(actions);
}

void Supervisor::remove_member(NodeId id, const std::string& why_gone, bool orderly, TimePoint now,
                               SupervisorActions& actions) {
  const auto it = members_.find(id);
  assert(it != members_.end());
  // Its process ends so soon after it was told to that its word may not arrive.
  orderly = orderly || it->second.told_to_end;
  const std::string reason = it->second.told_to_end ? "it was drained" : why_gone;
  Member member = std::move(it->second);
  const Incarnation life = member.incarnation;
  members_.erase(it);
  member.state = MemberState::kLost;
  member.lost_reason = reason;
  close(member.session, reason, actions);
  std::erase_if(tokens_, [&](const auto& entry) {
    return entry.first.first == member.incarnation || entry.first.second == member.incarnation;
  });
  if (state_ == ClusterState::kStopping) {
    record("node_left", to_string(id) + " left, as it was told.", now, actions);
  } else if (orderly) {
    record("node_left", to_string(id) + " left: " + reason, now, actions);
  } else {
    ++counters_.lost;
    record("node_lost", to_string(id) + " is lost: " + reason, now, actions);
    gone_.push_back(std::move(member));
    if (gone_.size() > limits::kLostNodesMax) gone_.pop_front();
  }
  std::erase_if(broken_links_, [&](const auto& entry) {
    return entry.first.first == life || entry.first.second == life;
  });
  std::erase_if(speeds_, [&](const auto& entry) { return entry.first.node == id; });
  std::erase_if(slow_, [&](const auto& device) { return device.node == id; });
  node_gone(id, orderly, actions);
  if (state_ == ClusterState::kStopping) return;
  const std::string why = to_string(id) + (orderly ? " left" : " is lost") + " (" + reason + ")";
  for (const auto& [other, peer] : members_)
    actions.send(member_address(peer), MemberLost{id, life, why});
  if (active_) {
    std::string parts;
    for (const auto& part : parts_on(id)) parts += (parts.empty() ? "" : ", ") + part;
    if (!parts.empty())
      record(orderly ? "placement" : "lost", to_string(id) + " had " + parts + ".", now, actions);
  }
  settling_.erase(id);
  if (pending_ && loading_.contains(id)) {
    // Everyone who loads it was told to connect to that node, even if it gets nothing.
    pending_.reset();
    loading_.clear();
  }
  lose_devices(why, now, actions);
  retire_if_settled(now, actions);
}

// --- Time ---------------------------------------------------------------------------------------

void Supervisor::check_leases(TimePoint now, SupervisorActions& actions) {
  std::vector<NodeId> late;
  for (const auto& [id, member] : members_) {
    if (now - member.last_renew >= limits::kLease) late.push_back(id);
  }
  for (const NodeId id : late) {
    remove_member(id, "it did not renew its lease, so it hangs or is cut off", false, now, actions);
  }
  if (!late.empty()) consider(now, actions);
}

}  // namespace troupe
