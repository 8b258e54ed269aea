#include "actors/supervisor/placement_lifecycle.h"

#include <algorithm>
#include <cassert>

#include "actors/supervisor/tell_router.h"
#include "actors/supervisor/times.h"
#include "runtime/counted.h"

// How a version of the placement comes into force, and what a loss takes out of it.

namespace troupe {
namespace {

/// Whether another load by the same member may end otherwise, though nothing changes.
bool worth_another_load(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded ||
         code == ErrorCode::kCancelled || code == ErrorCode::kInternal;
}

}  // namespace

const ModelCosts& PlacementLifecycle::model(const SupervisorOptions& options,
                                            const Membership& members) const {
  assert(members.numerics());
  if (!model_) model_ = options.costs(*members.numerics());
  return *model_;
}

// --- Load ---------------------------------------------------------------------------------------

void PlacementLifecycle::load(Placement placement, SupervisorTurn& turn) {
  ++turn.counters.placements;
  service_.no_trouble();
  room_.shards_left = false;
  proofs_.version_loads();
  versions_.load(std::move(placement), step_tokens_, turn);
}

void PlacementLifecycle::on_progress(Member& member, const LoadProgress& progress,
                                     SupervisorTurn& turn) {
  const Placement* pending = versions_.pending();
  if (!pending || progress.version != pending->version) return;
  if (progress.bytes_done > progress.bytes_total) {
    ++turn.counters.garbage;
    return;
  }
  const bool begins = member.load_total == 0;
  const bool goes_on = begins || progress.bytes_done > member.load_done;
  member.load_done = std::max(member.load_done, progress.bytes_done);
  member.load_total = progress.bytes_total;
  if (!goes_on) return;
  const bool all = member.load_done == member.load_total;
  versions_.progress(member.id, turn.now,
                     all ? std::nullopt : std::optional(pause_of(member, turn)));
}

/// How long it may say nothing while it reads its largest piece.
Duration PlacementLifecycle::pause_of(const Member& member, const SupervisorTurn& turn) const {
  const ModelCosts& costs = model(turn.options, turn.members);
  std::uint64_t largest = costs.expert_bytes;
  for (const auto& shard : versions_.pending()->shards) {
    if (shard.device.node != member.id) continue;
    std::uint64_t bytes = costs.embedding_bytes + costs.head_bytes;
    for (std::int32_t layer = shard.first_layer; layer <= shard.last_layer; ++layer)
      bytes += costs.layers[static_cast<std::size_t>(layer)].bytes;
    largest = std::max(largest, bytes);
  }
  const auto reads = std::chrono::seconds(largest / kSlowStorageBytesPerSecond);
  return std::min<Duration>(kLoadSilence + reads, limits::kLoadProgressDeadline);
}

void PlacementLifecycle::on_loaded(Member& member, PlacementVersion version, SupervisorTurn& turn) {
  versions_.follow(member.id, version, turn);
  const Placement* pending = versions_.pending();
  if (!pending || version != pending->version || !versions_.loads_on(member.id)) return;
  versions_.loaded(member.id);
  if (member.closed_reason.empty() && versions_.gives_new(member.id)) member.failed_loads = 0;
  activate_if_proven(turn);
}

void PlacementLifecycle::on_load_failed(Member& member, const LoadFailed& failed,
                                        SupervisorTurn& turn) {
  const Placement* pending = versions_.pending();
  if (!pending || failed.version != pending->version || !versions_.loads_on(member.id)) return;
  fail_load(member,
            {failed.error.code, to_string(member.id) + " on " + member.inventory.host +
                                    " could not load its part: " + failed.error.message},
            turn);
}

void PlacementLifecycle::on_wake(SupervisorTurn& turn) {
  if (turn.members.reopen(turn.now)) change_goal(turn.now);
  versions_.settle_by_deadline(turn.now);
  proofs_.on_wake(turn);
  hear_verdicts(turn);
  canaries_.on_wake(turn);
  retire_if_settled(turn);
  versions_.leave_behind(turn.now);
  activate_if_proven(turn);
  fail_silent(turn);
  if (const auto node = versions_.stuck(turn.now)) {
    Member& member = turn.members.at(*node);
    fail_load(member,
              resource_exhausted(to_string(*node) + " on " + member.inventory.host +
                                 " made no progress with its load; look at its log."),
              turn);
  }
}

/// Its storage may be slow, or hang: the others do not wait for it if they have room.
void PlacementLifecycle::fail_silent(SupervisorTurn& turn) {
  const auto node = versions_.silent(turn.now);
  if (!node || !can_do_without(*node, turn)) return;
  Member& member = turn.members.at(*node);
  fail_load(member,
            unavailable(to_string(*node) + " on " + member.inventory.host +
                        " has read nothing of its part for some seconds; look at its storage."),
            turn);
}

/// The version is given up; what serves goes on. A member that cannot take its part is given
/// nothing new for a while if the others have room; one that fails again all the same, at once, is
/// no reason to hurry.
void PlacementLifecycle::fail_load(Member& member, const Error& error, SupervisorTurn& turn) {
  versions_.abandon();
  change_goal(turn.now);
  if (!member.closed_reason.empty()) versions_.wait_for_retry(turn.now);
  turn.members.close(member, error.message, worth_another_load(error.code), turn.now);
  const auto closed =
      std::chrono::duration_cast<std::chrono::seconds>(member.closed_until - turn.now);
  turn.record("load_failed", error.message + (error.message.ends_with('.') ? " For " : ". For ") +
                                 std::to_string(closed.count()) +
                                 " s it is given nothing new if others have room.");
  if (!versions_.serves()) service_.trouble(unavailable(error.message));
  retire_if_settled(turn);
  consider(turn);
}

// --- Proofs -------------------------------------------------------------------------------------

void PlacementLifecycle::on_proofs(const Member& member, const TensorProofs& proofs,
                                   SupervisorTurn& turn) {
  proofs_.take(member, proofs, turn);
  hear_verdicts(turn);
}

void PlacementLifecycle::on_read(const TensorsRead& read, SupervisorTurn& turn) {
  proofs_.take(read, turn);
  hear_verdicts(turn);
}

/// What nobody serves with yet is not loaded; a member that is wrong has to go with all it holds.
void PlacementLifecycle::hear_verdicts(SupervisorTurn& turn) {
  std::optional<Verdict> refused;
  for (Verdict& verdict : proofs_.take_verdicts()) {
    const Member* member = turn.members.find(verdict.node);
    if (!member) continue;
    ++turn.counters.refused_copies;
    turn.record("proof_failed", verdict.why.message);
    discard(*member, verdict.tensors, turn);
    // What serves was read before, and proven.
    const bool loads = versions_.loads_on(verdict.node) && versions_.gives_new(verdict.node);
    const bool serves_on =
        verdict.may_serve_on || (verdict.newly_read && loads && serves(verdict.node));
    if (!serves_on)
      wrong_.push_back(std::move(verdict));
    else if (!refused && loads)
      refused = std::move(verdict);
  }
  if (refused) {
    // What nobody serves with may be wrong on either side.
    for (const NodeId node : refused->rivals) {
      const Member* rival = turn.members.find(node);
      if (!rival || serves(node)) continue;
      discard(*rival, refused->tensors, turn);
      proofs_.let_go(node, refused->tensors);
    }
    fail_load(turn.members.at(refused->node), refused->why, turn);
  }
  activate_if_proven(turn);
}

bool PlacementLifecycle::serves(NodeId node) const {
  return !versions_.replicas_using(node).empty();
}

/// It must not use what it read of these in anything new.
void PlacementLifecycle::discard(const Member& member, const std::vector<std::string>& tensors,
                                 SupervisorTurn& turn) const {
  for (std::size_t from = 0; from < tensors.size(); from += limits::kProofsPerMessage) {
    const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(from);
    const auto count = std::min(limits::kProofsPerMessage, tensors.size() - from);
    turn.effects.send(member.agent(), Discard{{begin, begin + static_cast<std::ptrdiff_t>(count)}});
  }
}

void PlacementLifecycle::on_canary(const Member& member, const CanaryResult& result,
                                   SupervisorTurn& turn) {
  if (!versions_.active()) return;
  const bool changed = canaries_.take(result, member.id, *versions_.active(), turn);
  for (const Canaries::Verdict& verdict : canaries_.take_verdicts()) {
    ++turn.counters.refused_copies;
    turn.record("proof_failed", verdict.why.message);
    tell_router(ReplicasLost{{verdict.replica}, verdict.why.message}, turn);
    for (const NodeId node : verdict.nodes) wrong_.push_back({node, verdict.why});
    forget_prefixes(std::nullopt, turn);
  }
  if (!changed) return;
  send_replicas(turn);
  consider(turn);
}

void PlacementLifecycle::forget_prefixes(std::optional<NodeId> node, SupervisorTurn& turn) const {
  if (!versions_.active()) return;
  const Placement& active = *versions_.active();
  // Experts that it had, or let go a moment ago, were asked by all.
  const bool all = !node || !active.experts.empty();
  std::vector<std::uint32_t> doubted;
  if (!all) doubted = versions_.replicas_using(*node);
  PrefixesForgotten forgotten;
  for (const auto& replica : active.replicas) {
    const Member* member = turn.members.find(replica.node);
    if (!member || (!all && std::ranges::find(doubted, replica.id) == doubted.end())) continue;
    turn.effects.send(Ref<ReplicaInbox>(member->id, member->incarnation, replica.id),
                      ForgetPrefixes{replica.id});
    forgotten.replicas.push_back(replica.id);
  }
  tell_router(std::move(forgotten), turn);
}

void PlacementLifecycle::doubt_canary(TimePoint since, SupervisorTurn& turn) {
  canaries_.doubt(since, turn);
}

// --- Activate, retire ---------------------------------------------------------------------------

/// While one is wrong and not yet gone, its part is in the version that loads.
void PlacementLifecycle::activate_if_proven(SupervisorTurn& turn) {
  if (!wrong_.empty()) return;
  if (versions_.all_loaded() && !proofs_.open_on(versions_.loaders())) activate(turn);
}

void PlacementLifecycle::activate(SupervisorTurn& turn) {
  versions_.activate(model(turn.options, turn.members), turn);
  survival_.reset();
  canaries_.follow(*versions_.active(), turn.now);
  canaries_.soon(turn.now);
  canaries_.on_wake(turn);
  send_replicas(turn);
  report_operations(turn);
  note(turn);
  retire_if_settled(turn);  // all may be behind
}

void PlacementLifecycle::on_activated(const Member& member, PlacementVersion version,
                                      SupervisorTurn& turn) {
  if (!versions_.active() || version != versions_.active()->version) return;
  versions_.settled(member.id);
  retire_if_settled(turn);
}

void PlacementLifecycle::retire_if_settled(SupervisorTurn& turn) {
  if (!versions_.retire_if_settled(turn)) return;
  report_operations(turn);
  consider(turn);
}

void PlacementLifecycle::send_replicas(SupervisorTurn& turn) const {
  const Placement& active = *versions_.active();
  ReplicasChanged change{active.version, {}};
  for (const auto& replica : active.replicas) {
    const Member* member = turn.members.find(replica.node);
    if (!member || !canaries_.proven(replica.id)) continue;
    const bool slow =
        std::any_of(active.shards.begin(), active.shards.end(), [&](const auto& shard) {
          return shard.replica == replica.id && turn.members.speeds().slow(shard.device);
        });
    const Ref<ReplicaInbox> to(replica.node, member->incarnation, replica.id);
    const std::uint64_t cache_tokens = static_cast<std::uint64_t>(replica.kv_blocks) *
                                       static_cast<std::uint64_t>(turn.options.engine.block_size);
    change.replicas.push_back({replica.id, to.address, slow, cache_tokens});
  }
  tell_router(std::move(change), turn);
}

// --- Losses -------------------------------------------------------------------------------------

void PlacementLifecycle::member_joined(TimePoint now) {
  change_goal(now + kGoalDelay);
  versions_.retry_now();
}

void PlacementLifecycle::member_gone(NodeId node, bool orderly, SupervisorTurn& turn) {
  operations_.node_gone(node, orderly, turn.effects);
  proofs_.member_gone(node);
  canaries_.member_gone(node);
  if (service_.stopping()) return;
  versions_.settled(node);
  // All who load it were told to connect to that node, even if it gets nothing.
  if (versions_.loads_on(node)) versions_.abandon();
}

bool PlacementLifecycle::devices_lost(const std::string& why, SupervisorTurn& turn) {
  change_goal(turn.now + kGoalDelay);
  versions_.retry_now();
  bool any = false;
  if (versions_.active() || versions_.pending()) {
    auto lost = versions_.keep_living(turn.members.devices(), model(turn.options, turn.members));
    if (versions_.active()) canaries_.follow(*versions_.active(), turn.now);
    any = !lost.empty();
    if (any) {
      tell_router(ReplicasLost{std::move(lost), why}, turn);
      send_replicas(turn);
    }
  }
  retire_if_settled(turn);
  return any;
}

void PlacementLifecycle::device_failed(const std::string& why, SupervisorTurn& turn) {
  if (devices_lost(why, turn) && !versions_.pending()) room_.shards_left = true;
}

void PlacementLifecycle::on_slow_devices(const SlowDevices::Changes& changes,
                                         SupervisorTurn& turn) {
  if (changes.drained) change_goal(turn.now);
  if (changes.slow && versions_.active()) send_replicas(turn);
}

void PlacementLifecycle::change_goal(TimePoint not_before) {
  goal_.change(not_before);
  survival_.reset();
}

// --- Operations ---------------------------------------------------------------------------------

void PlacementLifecycle::drain(std::uint32_t session, const DrainQuery& query,
                               SupervisorTurn& turn) {
  if (Status s = operations_.check_drain(query.node, turn.members, service_.stopping()); !s)
    return Operations::refuse(session, query.query, s.error(), turn.effects);
  turn.members.at(query.node).state = MemberState::kDraining;
  change_goal(turn.now);
  operations_.drain(session, query, versions_);
  turn.record("drain", to_string(query.node) + " is being drained.");
  const std::size_t total = versions_.pieces_on(query.node);
  send_to_session(
      turn.effects, session,
      OperationProgress{query.query, 0, total,
                        counted_copies(total) + " to move off " + to_string(query.node) + ".",
                        false, std::nullopt});
  consider(turn);
  report_operations(turn);
}

void PlacementLifecycle::rebalance(std::uint32_t session, const RebalanceQuery& query,
                                   SupervisorTurn& turn) {
  if (!versions_.serves())
    return Operations::refuse(
        session, query.query,
        unavailable("There is nothing to rebalance yet: " + service_.message()), turn.effects);
  if (Status s = operations_.check_room(); !s)
    return Operations::refuse(session, query.query, s.error(), turn.effects);
  operations_.rebalance(session, query);
  change_goal(turn.now);
  balance_.ask(*versions_.active());
  goal_.wait_until(turn.now);
  turn.record("rebalance", "A rebalance was asked for.");
  consider(turn);
  report_operations(turn);
}

/// The nodes and devices that were to be drained are needed: they serve on.
void PlacementLifecycle::fail_drains(const Error& error, SupervisorTurn& turn) {
  turn.members.speeds().keep_drained(turn.now);
  for (const auto& [id, drained] : turn.members.all()) {
    if (drained.state != MemberState::kDraining) continue;
    turn.members.at(id).state = MemberState::kReady;
    const Error told{error.code, to_string(id) + " cannot be drained: " + error.message};
    turn.record("drain", told.message);
    operations_.fail_drain(id, told, turn.effects);
  }
}

/// A drained node that holds nothing more is told to end.
void PlacementLifecycle::report_operations(SupervisorTurn& turn) {
  for (const auto& [id, member] : turn.members.all()) {
    if (member.state != MemberState::kDraining || member.told_to_end || !versions_.quiet())
      continue;
    if (versions_.pieces_on(id) > 0) continue;
    turn.members.at(id).told_to_end = true;
    turn.effects.send(member.agent(), Stop{"it was drained"});
  }
  operations_.report(versions_, goal_, turn);
}

// ------------------------------------------------------------------------------------------------

void PlacementLifecycle::stop(const std::string& reason) {
  versions_.stop();
  service_.stop(reason);
}

void PlacementLifecycle::on_counts(const ExpertCounts& counts, SupervisorTurn& turn) {
  if (!turn.members.numerics()) return;
  balance_.add(counts, model(turn.options, turn.members), turn.now);
  turn.effects.add(TokensCounted{counts});
}

void PlacementLifecycle::arrange_wake(TimePoint now, SupervisorEffects& effects) const {
  versions_.arrange_wake(effects);
  service_.arrange_wake(now, effects);
  if (service_.stopping()) return;
  proofs_.arrange_wake(now, effects);
  canaries_.arrange_wake(effects);
  if (inheritance_.deadline()) effects.wake_at(*inheritance_.deadline());
  if (!versions_.quiet() || !versions_.serves()) return;
  // Until a load that failed may be tried again nothing is improved.
  const TimePoint first =
      std::max(versions_.retry_at().value_or(goal_.not_before()), goal_.not_before());
  if (!goal_.reached())
    effects.wake_at(first);
  else if (balance_.load().total() > 0)
    effects.wake_at(std::max(first, balance_.next_check()));
}

std::string PlacementLifecycle::violation(const Membership& members,
                                          const Sessions& sessions) const {
  if (auto v = versions_.violation(members); !v.empty()) return v;
  if (auto v = goal_.violation(); !v.empty()) return v;
  if (auto v = operations_.violation(members, sessions); !v.empty()) return v;
  if (auto v = service_.violation(versions_, canaries_.any_proven()); !v.empty()) return v;
  if (auto v = proofs_.violation(); !v.empty()) return v;
  if (auto v = canaries_.violation(versions_.active()); !v.empty()) return v;
  if (service_.stopping() || !versions_.active()) return {};
  const auto lives = [&](const DeviceRef& device) {
    const Member* member = members.find(device.node);
    return member && device.index < member->devices.size() &&
           member->devices[device.index].failed.empty();
  };
  const Placement& active = *versions_.active();
  for (const auto& shard : active.shards)
    if (!lives(shard.device))
      return "A shard in force is on " + to_string(shard.device) + ", which does not live.";
  for (const auto& layer : active.experts)
    for (const auto& slot : layer.slots)
      if (!lives(slot.device))
        return "An expert in force is on " + to_string(slot.device) + ", which does not live.";
  return {};
}

}  // namespace troupe
