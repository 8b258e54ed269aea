#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>

#include "actors/supervisor/check_inventory.h"
#include "actors/supervisor/cut_off.h"
#include "actors/supervisor/supervisor.h"
#include "actors/supervisor/tell_router.h"
#include "runtime/counted.h"
#include "runtime/limits.h"
#include "transport/bulk_address.h"

// What members say, how a worker becomes one, and how it ceases to be one.

namespace troupe {
namespace {

/// What a member says of a link, as a part of a sentence.
std::string part_of_sentence(std::string reason) {
  reason.resize(std::min<std::size_t>(reason.size(), 1024));
  if (reason.ends_with('.')) reason.pop_back();
  return reason;
}

}  // namespace

// --- Joining ------------------------------------------------------------------------------------

void Supervisor::on(const Join& join, const Envelope& envelope, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const Sender sender = sender_of(envelope, turn);
  if (!is(Sender::Kind::kStranger, sender, envelope, turn)) return;
  if (placement_.service().stopping())
    return refuse_session(sender.session, unavailable("The cluster is stopping."), turn);
  if (Status s = members_.check(join, options_); !s)
    return refuse_session(sender.session, s.error(), turn);
  let_in(sender.session, join, turn);
}

/// The id is kept before anyone hears it, and the session bound before the member is welcomed.
void Supervisor::let_in(std::uint32_t session, const Join& join, SupervisorTurn& turn) {
  const auto former = members_.former_life(join, options_.cluster_id);
  // Its machine ended its old life before it sought the head again.
  if (former) remove(*former, "it came back with a new connection", false, turn);
  const bool goes_on = !former && placement_.inherits(join, turn);
  for (const NodeId older : placement_.take_superseded())
    remove(older, "it has kept an older version of the placement than others", false, turn);
  const std::uint32_t next_before = members_.next_node();
  const NodeId id = members_.choose_id(join, options_.cluster_id);
  if (members_.next_node() != next_before) turn.effects.add(KeepNextNode{members_.next_node()});
  const Member& member =
      members_.add(id, session, join, turn.now,
                   goes_on ? std::optional(join.held_role->incarnation) : std::nullopt);
  if (const auto* shown = sessions_.find(session)) members_.at(id).certificate = shown->certificate;
  sessions_.become_member(session, id);
  ++counters_.joined;
  turn.effects.add(BindSession{session, id, member.incarnation});
  const auto lease = std::chrono::duration_cast<std::chrono::milliseconds>(limits::kLease);
  turn.effects.send(member.agent(),
                    Welcome{id, member.incarnation, static_cast<std::uint32_t>(lease.count()),
                            static_cast<std::uint32_t>(options_.keep_for.count())});
  turn.record("node_joined", to_string(id) + " joined: process " + std::to_string(join.pid) +
                                 " on " + join.host + " with " +
                                 counted(join.devices.size(), "device") +
                                 (goes_on ? ", and goes on with what it served." : "."));
  standby_.member_joined(member, turn);
  const auto& slow_ones = members_.speeds().slow();
  if (!slow_ones.empty())
    turn.effects.send(member.agent(), Avoid{{slow_ones.begin(), slow_ones.end()}});
  placement_.member_joined(turn.now);
  placement_.consider(turn);
}

void Supervisor::on(const Leave& leave, const Envelope& envelope, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const Sender sender = sender_of(envelope, turn);
  const std::string reason = leave.reason.substr(0, limits::kNameBytesMax);
  if (sender.kind == Sender::Kind::kStranger) {
    // A worker that found by itself that it does not belong here.
    ++counters_.refused_joins;
    turn.record("refused",
                "A worker at " + sessions_.find(sender.session)->peer + " did not join: " + reason);
    sessions_.close(sender.session, "it did not join", effects);
  } else if (is(Sender::Kind::kMember, sender, envelope, turn)) {
    remove(sender.member->id, reason, true, turn);
    placement_.consider(turn);
  }
}

// --- Reports ------------------------------------------------------------------------------------

void Supervisor::on(const Renew& renew, const Envelope& envelope, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  Member* member = member_of(envelope, turn);
  if (!member) return;
  if (!members_.renew(*member, renew, now)) {
    ++counters_.garbage;
    return;
  }
  if (Membership::deaf(*member, now)) {
    remove(member->id, "it hears nothing of this head, so it is cut off", false, turn);
    return placement_.consider(turn);
  }
  effects.send(member->agent(), Renewed{renew.sequence});
  std::set<std::uint32_t> failed;  // since the last report
  for (std::uint32_t i = 0; i < std::min(renew.devices.size(), member->devices.size()); ++i)
    if (member->devices[i].failed.empty() && !renew.devices[i].failed.empty()) failed.insert(i);
  const auto result = members_.take_report(*member, renew.devices);
  if (result == Membership::ReportResult::kLies) {
    ++counters_.garbage;
    return;
  }
  LoadsMeasured loads{member->id, {}};
  for (const auto& device : member->devices) loads.utilization.push_back(device.utilization);
  effects.add(std::move(loads));
  member->proofs = renew.proofs;
  member->replicas.clear();
  for (const auto& report : renew.replicas)
    if (placement_.versions().has_replica(report.replica, member->id))
      member->replicas.push_back(report);
  check_speed(turn);
  if (result == Membership::ReportResult::kDeviceFailed) device_failed(*member, failed, turn);
}

void Supervisor::check_speed(SupervisorTurn& turn) {
  const SlowDevices::Changes changes = members_.speeds().check(turn.now);
  for (const std::string& text : changes.texts) turn.record("device_slow", text);
  if (changes.slow) {
    const auto& slow_ones = members_.speeds().slow();
    members_.send_all(message_of(Avoid{{slow_ones.begin(), slow_ones.end()}}), turn.effects);
  }
  placement_.on_slow_devices(changes, turn);
}

/// The device is taken out, the node stays.
void Supervisor::device_failed(const Member& member, const std::set<std::uint32_t>& failed,
                               SupervisorTurn& turn) {
  std::string why;
  for (const std::uint32_t i : failed) {
    why = to_string(DeviceRef{member.id, i}) +
          " failed: " + member.devices[i].failed.substr(0, limits::kNameBytesMax);
    turn.record("device_failed", why);
  }
  placement_.doubt_canary(turn.now - limits::kKnownAnswersEvery, turn);
  placement_.forget_prefixes(member.id, turn);
  placement_.device_failed(why, turn);
  placement_.consider(turn);
}

void Supervisor::on(const LoadProgress& progress, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (Member* member = member_of(envelope, turn)) placement_.on_progress(*member, progress, turn);
}

void Supervisor::on(const Loaded& loaded, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (Member* member = member_of(envelope, turn))
    placement_.on_loaded(*member, loaded.version, turn);
}

void Supervisor::on(const LoadFailed& failed, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (Member* member = member_of(envelope, turn)) placement_.on_load_failed(*member, failed, turn);
}

void Supervisor::on(const Activated& activated, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (const Member* member = member_of(envelope, turn))
    placement_.on_activated(*member, activated.version, turn);
}

void Supervisor::on(const ExpertCounts& counts, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (member_of(envelope, turn)) placement_.on_counts(counts, turn);
}

// --- Proofs -------------------------------------------------------------------------------------

void Supervisor::on(const TensorProofs& proofs, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const Member* member = member_of(envelope, turn);
  if (!member || placement_.service().stopping()) return;
  placement_.on_proofs(*member, proofs, turn);
  take_out(placement_.take_wrong(), turn);
}

void Supervisor::on(TensorsRead read, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (placement_.service().stopping()) return;
  placement_.on_read(read, turn);
  take_out(placement_.take_wrong(), turn);
}

void Supervisor::on(const CanaryResult& result, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const Member* member = member_of(envelope, turn);
  if (!member || placement_.service().stopping()) return;
  placement_.on_canary(*member, result, turn);
  take_out(placement_.take_wrong(), turn);
}

/// It has let go of the copy already, and comes back with what it can prove.
void Supervisor::on(const ProofFailed& failed, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const Member* member = member_of(envelope, turn);
  if (!member || placement_.service().stopping()) return;
  ++counters_.refused_copies;
  const std::string text = text_of(failed, *member);
  turn.record("proof_failed", text);
  placement_.doubt_canary(now - std::chrono::seconds(failed.last_good_s), turn);
  take_out({{member->id, corrupt(text)}}, turn);
}

/// They are fenced, all before anything is planned, and take nothing new for a while if that
/// happens again and again.
void Supervisor::take_out(const std::vector<Verdict>& wrong, SupervisorTurn& turn) {
  std::string why;
  for (const Verdict& verdict : wrong) {
    if (!members_.find(verdict.node)) continue;
    members_.doubt(members_.at(verdict.node), verdict.why.message, turn.now);
    // It keeps nothing for another head.
    turn.effects.send(members_.at(verdict.node).agent(), Discard{});
    const std::string its_why =
        fence(verdict.node, "it failed a proof: " + verdict.why.message, false, turn);
    if (why.empty()) why = its_why;
  }
  if (why.empty() || placement_.service().stopping()) return;
  placement_.devices_lost(why, turn);
  placement_.consider(turn);
}

// --- Links --------------------------------------------------------------------------------------

void Supervisor::on(const PeerUnreachable& report, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const Member* reporter = member_of(envelope, turn);
  if (!reporter) return;
  ++counters_.unreachable_peers;
  if (placement_.service().stopping()) return;  // peers leave one before the other
  const Member* peer = members_.find(report.peer);
  if (!peer || peer->incarnation != report.incarnation) return;  // known
  if (!placement_.versions().connects(reporter->id, peer->id)) return links_.drop(*reporter, *peer);
  switch (links_.report(*reporter, *peer, report, now)) {
    case Links::Report::kConnectAgain:
      turn.record("peer_unreachable",
                  with_bulk_lane(*reporter) + " cannot reach " + with_bulk_lane(*peer) + ": " +
                      part_of_sentence(report.reason) +
                      (report.fault == LinkFault::kNobody ? "; the other one tries." : ""));
      effects.send(reporter->agent(), Connect{links_.tell(*reporter, *peer, options_)});
      effects.send(peer->agent(), Connect{links_.tell(*peer, *reporter, options_)});
      break;
    case Links::Report::kKnown:
      break;
    case Links::Report::kFence:
      fence_one_of(*reporter, *peer, report, turn);
      break;
  }
}

void Supervisor::fence_one_of(const Member& reporter, const Member& peer,
                              const PeerUnreachable& report, SupervisorTurn& turn) {
  const PlacementVersions& versions = placement_.versions();
  const auto elsewhere = [&](const Member& member) {
    const auto* session = sessions_.find(member.session);
    return session && is_elsewhere(member.inventory.fabric_address, session->peer);
  };
  const auto end_of = [&](const Member& member) {
    return CutOff{member.id,
                  &member == &reporter && report.fault == LinkFault::kOwnEnd,
                  links_.broken(member),
                  static_cast<std::int64_t>(versions.shards_on(member.id)),
                  static_cast<std::int64_t>(versions.pieces_on(member.id)),
                  elsewhere(member)};
  };
  const NodeId fenced = who_goes(end_of(reporter), end_of(peer));
  std::string why = with_bulk_lane(reporter) + " cannot reach " + with_bulk_lane(peer) + ": " +
                    part_of_sentence(links_.first_reason(reporter, peer));
  if (elsewhere(members_.at(fenced)))
    why += "; " + to_string(fenced) + " comes from " +
           host_of(sessions_.find(members_.at(fenced).session)->peer) +
           ": see --bind-interface, and whether its addresses are translated on the way";
  const auto length = links_.quarantine(fenced, "Left out for a while: " + why + ".", turn.now);
  why += "; it takes no part for " +
         counted(static_cast<std::size_t>(length / std::chrono::seconds(1)), "second");
  remove(fenced, why, false, turn);
  placement_.consider(turn);
}

// --- Losses -------------------------------------------------------------------------------------

/// All whose lease has ended are fenced before anything is planned or sent to the Router: what one
/// of them had must not move to another.
void Supervisor::check_leases(SupervisorTurn& turn) {
  const auto late = members_.late(turn.now);
  if (late.empty()) return;
  std::string why;  // of the replicas' loss: names a node that had a shard, if one had
  for (const NodeId id : late) {
    const std::string its_why =
        fence(id, "it did not renew its lease, so it hangs or is cut off", false, turn);
    if (why.empty() || placement_.versions().shards_on(id) > 0) why = its_why;
  }
  if (placement_.service().stopping()) return;
  placement_.devices_lost(why, turn);
  placement_.consider(turn);
}

void Supervisor::remove(NodeId id, const std::string& why_gone, bool orderly,
                        SupervisorTurn& turn) {
  const std::string why = fence(id, why_gone, orderly, turn);
  if (!placement_.service().stopping()) placement_.devices_lost(why, turn);
}

void Supervisor::on(const CrashReport& report, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const auto session = client_of(envelope, turn);
  if (!session) return;
  const std::string reason =
      "its process crashed: " + report.reason.substr(0, limits::kNameBytesMax);
  OperationProgress answer{report.query, 0, 0, "", true, std::nullopt};
  const auto is_it = [&](const Member& member) {
    return member.id == report.node && member.incarnation == report.incarnation;
  };
  const Member* member = members_.find(report.node);
  if (member && is_it(*member)) {
    remove(report.node, reason, false, turn);
  } else if (std::any_of(gone().begin(), gone().end(), is_it)) {
    turn.record("node_crashed", to_string(report.node) + " is lost because " + reason);
  } else {
    answer.error = not_found("No such life of " + to_string(report.node) + " was lost lately.");
    return send_to_session(effects, *session, std::move(answer));
  }
  tell_router(LifeCrashed{report.incarnation, to_string(report.node) + ": " + reason}, turn);
  send_to_session(effects, *session, std::move(answer));
  placement_.consider(turn);
}

/// That life counts no more, and all hear it. Returns the reason for clients; devices_lost()
/// follows.
std::string Supervisor::fence(NodeId id, const std::string& why_gone, bool orderly,
                              SupervisorTurn& turn) {
  Member member = members_.remove(id);
  const Incarnation life = member.incarnation;
  // Its process ends so soon after it was told to that its word may not arrive.
  orderly = orderly || member.told_to_end;
  const std::string reason = member.told_to_end ? "it was drained" : why_gone;
  const bool stopping = placement_.service().stopping();
  sessions_.close(member.session, reason, turn.effects);
  links_.forget(life);
  if (stopping) {
    turn.record("node_left", to_string(id) + " left, as it was told.");
  } else if (orderly) {
    turn.record("node_left", to_string(id) + " left: " + reason);
  } else {
    ++counters_.lost;
    turn.record("node_lost", to_string(id) + " is lost: " + reason);
    member.lost_reason = reason;
    members_.remember(std::move(member));
  }
  placement_.member_gone(id, orderly, turn);
  network_.member_gone(id, reason, turn);
  if (!stopping) {
    tell_router(LifeLost{life, placement_.versions().replicas_using(id)}, turn);
    placement_.forget_prefixes(id, turn);
  }
  const std::string why = to_string(id) + (orderly ? " left" : " is lost") + " (" + reason + ")";
  if (stopping) return why;
  members_.send_all(message_of(MemberLost{id, life, why}), turn.effects);
  std::string parts;
  for (const auto& part : placement_.versions().parts_on(id))
    parts += (parts.empty() ? "" : ", ") + part;
  if (!parts.empty())
    turn.record(orderly ? "placement" : "lost", to_string(id) + " had " + parts + ".");
  return why;
}

}  // namespace troupe
