#include "actors/supervisor/versions.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "actors/supervisor/times.h"
#include "model/placement/route_peers.h"
#include "runtime/counted.h"

namespace troupe {
namespace {

constexpr std::size_t kPartsNamedMax = 8;
/// A member that has not said by then that it is done with older versions is not waited for: where
/// an expert is missing, the next copy is asked.
constexpr auto kSettleDeadline = limits::kStepDeadline;

bool has(const Placement& placement, std::uint32_t replica) {
  return std::any_of(placement.replicas.begin(), placement.replicas.end(),
                     [&](const auto& r) { return r.id == replica; });
}

std::size_t shards_of(const Placement& placement, NodeId node) {
  return static_cast<std::size_t>(
      std::count_if(placement.shards.begin(), placement.shards.end(),
                    [&](const auto& shard) { return shard.device.node == node; }));
}

/// ", rank 0 of 2,", where a stage has several.
std::string rank_text(const Placement& placement, const ShardPlacement& shard) {
  const auto ranks = std::count_if(
      placement.shards.begin(), placement.shards.end(), [&](const ShardPlacement& other) {
        return other.replica == shard.replica && other.stage == shard.stage;
      });
  if (ranks == 1) return {};
  return ", rank " + std::to_string(shard.tp_rank) + " of " + std::to_string(ranks) + ",";
}

}  // namespace

std::set<NodeId> nodes_with_parts(const Placement& placement) {
  std::set<NodeId> nodes;
  for (const auto& shard : placement.shards) nodes.insert(shard.device.node);
  for (const auto* layers : {&placement.experts, &placement.tier})
    for (const auto& layer : *layers)
      for (const auto& slot : layer.slots) nodes.insert(slot.device.node);
  return nodes;
}

bool same_parts(const Placement& a, const Placement& b) {
  return a.replicas == b.replicas && a.shards == b.shards && a.experts == b.experts &&
         a.tier == b.tier;
}

// --- The next version ---------------------------------------------------------------------------

bool PlacementVersions::may_load(TimePoint now) {
  if (next_ == Next::kWaits && now >= retry_at_) next_ = Next::kNone;
  return next_ == Next::kNone;
}

void PlacementVersions::load(Placement placement, std::int32_t step_tokens,
                             SupervisorTurn& turn) {
  placement.version = PlacementVersion{next_version_++};
  for (const auto& replica : placement.replicas)
    if (!active() || !has(active_, replica.id)) next_replica_ = replica.id + 1;
  pending_ = std::move(placement);
  next_ = Next::kLoads;
  given_up_ = false;
  loading_.clear();
  std::set<NodeId> concerned = nodes_with_parts(pending_);
  concerned.merge(nodes_with_parts(active_));
  // A member that has lost all of its part must hear that it may let go of it.
  concerned.insert(served_by_.begin(), served_by_.end());
  for (const NodeId node : concerned) {
    Member* member = turn.members.find(node);
    if (!member) continue;
    Loading& loading = loading_[node];
    loading.deadline = turn.now + limits::kLoadProgressDeadline;
    if (!member->closed_reason.empty() && !gives_new(node))
      loading.behind_from = turn.now + kBehindAfter;
    member->load_done = 0;
    member->load_total = 0;
  }
  if (!active())
    turn.record("placement", "Version " + std::to_string(pending_.version.value) + ": " +
                                 counted(pending_.replicas.size(), "replica") + " over " +
                                 counted(loading_.size(), "node") + ".");
  for (const auto& [node, state] : loading_) {
    const Member& member = turn.members.at(node);
    Load load{pending_, turn.options.engine, {}};
    load.engine.numerics = turn.members.numerics();
    load.engine.max_num_batched_tokens = step_tokens;
    for (const NodeId other : route_peers(pending_, node)) {
      const Member& peer = turn.members.at(other);
      if (!turn.links.told(member, peer))
        load.peers.push_back(turn.links.tell(member, peer, turn.options));
    }
    turn.effects.send(member.agent(), std::move(load));
  }
}

void PlacementVersions::progress(NodeId node, TimePoint now, std::optional<Duration> pause) {
  const auto it = loading_.find(node);
  if (it == loading_.end()) return;
  it->second.deadline = now + limits::kLoadProgressDeadline;
  it->second.silent_from = pause ? std::optional(now + *pause) : std::nullopt;
}

std::optional<NodeId> PlacementVersions::silent(TimePoint now) {
  for (auto& [node, loading] : loading_) {
    if (loading.done || !loading.silent_from || now < *loading.silent_from) continue;
    loading.silent_from = now + kLoadSilence;
    return node;
  }
  return std::nullopt;
}

void PlacementVersions::leave_behind(TimePoint now) {
  for (auto& [node, loading] : loading_)
    loading.behind = loading.behind || (loading.behind_from && now >= *loading.behind_from);
}

bool PlacementVersions::gives_new(NodeId node) const {
  const auto has_new = [&](const auto& before, const auto& after) {
    return std::any_of(after.begin(), after.end(), [&](const auto& piece) {
      return piece.device.node == node &&
             std::find(before.begin(), before.end(), piece) == before.end();
    });
  };
  if (has_new(active_.shards, pending_.shards)) return true;
  std::map<std::int32_t, const LayerExperts*> before;
  for (const auto& layer : active_.experts) before[layer.layer] = &layer;
  return std::any_of(pending_.experts.begin(), pending_.experts.end(), [&](const auto& layer) {
    const auto old = before.find(layer.layer);
    return has_new(old == before.end() ? std::vector<ExpertSlot>{} : old->second->slots,
                   layer.slots);
  });
}

void PlacementVersions::follow(NodeId node, PlacementVersion version, SupervisorTurn& turn) {
  if (!active() || version != active_.version || behind_.erase(node) == 0) return;
  if (next_ == Next::kLoads) return;  // it follows with that one
  turn.effects.send(turn.members.at(node).agent(), Activate{version});
  if (in_force_ == InForce::kSettling)
    settling_.insert(node);
  else
    turn.effects.send(turn.members.at(node).agent(), Retire{version});
}

void PlacementVersions::loaded(NodeId node) { loading_.at(node).done = true; }

bool PlacementVersions::all_loaded() const {
  return next_ == Next::kLoads && std::all_of(loading_.begin(), loading_.end(), [](const auto& l) {
           return l.second.done || l.second.behind;
         });
}

std::set<NodeId> PlacementVersions::loaders() const {
  std::set<NodeId> nodes;
  for (const auto& [node, loading] : loading_) nodes.insert(node);
  return nodes;
}

std::optional<NodeId> PlacementVersions::stuck(TimePoint now) const {
  for (const auto& [node, loading] : loading_)
    if (!loading.done && !loading.behind && now >= loading.deadline) return node;
  return std::nullopt;
}

void PlacementVersions::abandon() {
  given_up_ = given_up_ || next_ == Next::kLoads;
  if (next_ == Next::kLoads) next_ = Next::kNone;
  pending_ = {};
  loading_.clear();
}

void PlacementVersions::let_go(SupervisorTurn& turn) {
  if (!given_up_ || next_ != Next::kNone || in_force_ != InForce::kSettled || !serves_) return;
  given_up_ = false;
  turn.members.send_all(message_of(Retire{active_.version}), turn.effects);
}

Duration PlacementVersions::wait_for_retry(TimePoint now) {
  next_ = Next::kWaits;
  const Duration wait = retry_backoff_;
  retry_at_ = now + wait;
  retry_backoff_ = std::min<Duration>(retry_backoff_ * 2, limits::kLoadRetryMax);
  return wait;
}

void PlacementVersions::retry_now() {
  if (next_ == Next::kWaits) next_ = Next::kNone;
}

std::optional<TimePoint> PlacementVersions::retry_at() const {
  return next_ == Next::kWaits ? std::optional(retry_at_) : std::nullopt;
}

// --- The version in force -----------------------------------------------------------------------

void PlacementVersions::inherit(Placement living, std::set<NodeId> by, std::uint32_t next_replica) {
  assert(in_force_ == InForce::kNone && next_ != Next::kLoads);
  next_version_ = std::max(next_version_, living.version.value + 1);
  next_replica_ = std::max(next_replica_, next_replica);
  active_ = std::move(living);
  in_force_ = InForce::kSettled;
  served_by_ = std::move(by);
}

void PlacementVersions::activate(const ModelCosts& model, SupervisorTurn& turn) {
  active_ = std::move(pending_);
  in_force_ = InForce::kSettling;
  serves_ = can_serve(active_, model);
  served_by_ = nodes_with_parts(active_);
  settling_.clear();
  behind_.clear();
  for (const auto& [node, state] : loading_) (state.done ? settling_ : behind_).insert(node);
  settle_deadline_ = turn.now + kSettleDeadline;
  retry_backoff_ = limits::kLoadRetryMin;
  abandon();
  given_up_ = false;
  for (const NodeId node : settling_) {
    Member& member = turn.members.at(node);
    if (member.state == MemberState::kJoining) member.state = MemberState::kReady;
    turn.effects.send(member.agent(), Activate{active_.version});
  }
}

void PlacementVersions::settle_by_deadline(TimePoint now) {
  if (now >= settle_deadline_) settling_.clear();
}

bool PlacementVersions::retire_if_settled(SupervisorTurn& turn) {
  // What loads meanwhile would be let go with what is older.
  if (in_force_ != InForce::kSettling || !settling_.empty() || next_ == Next::kLoads) return false;
  in_force_ = InForce::kSettled;
  turn.members.send_all(message_of(Retire{active_.version}), turn.effects);
  return true;
}

std::vector<std::uint32_t> PlacementVersions::keep_living(
    const std::vector<PlacementDevice>& devices, const ModelCosts& model) {
  if (next_ == Next::kLoads && !same_parts(pending_, living_part(pending_, devices))) abandon();
  if (!active()) return {};
  Placement living = living_part(active_, devices);
  std::vector<std::uint32_t> lost;
  for (const auto& replica : active_.replicas)
    if (!has(living, replica.id)) lost.push_back(replica.id);
  active_ = std::move(living);
  serves_ = can_serve(active_, model);
  return lost;
}

void PlacementVersions::stop() {
  abandon();
  retry_now();
  settling_.clear();
  if (in_force_ == InForce::kSettling) in_force_ = InForce::kSettled;
}

// --- What lies where ----------------------------------------------------------------------------

bool PlacementVersions::connects(NodeId a, NodeId b) const {
  return route_peers(active_, a).contains(b) || route_peers(pending_, a).contains(b);
}

std::size_t PlacementVersions::pieces_on(NodeId node) const {
  std::size_t count = 0;
  for (const Placement* placement : {active(), pending()}) {
    if (!placement) continue;
    std::size_t here = shards_of(*placement, node);
    for (const auto& layer : placement->experts)
      for (const auto& slot : layer.slots) here += slot.device.node == node ? 1 : 0;
    count = std::max(count, here);
  }
  return count;
}

std::size_t PlacementVersions::shards_on(NodeId node) const { return shards_of(active_, node); }

bool PlacementVersions::has_replica(std::uint32_t replica, NodeId node) const {
  const auto in = [&](const Placement& placement) {
    return std::any_of(placement.replicas.begin(), placement.replicas.end(),
                       [&](const auto& r) { return r.id == replica && r.node == node; });
  };
  return in(active_) || in(pending_);
}

std::vector<std::uint32_t> PlacementVersions::replicas_using(NodeId node) const {
  std::set<std::uint32_t> using_it;
  for (const auto& shard : active_.shards)
    if (shard.device.node == node) using_it.insert(shard.replica);
  // Any shard may ask any expert.
  if (pieces_on(node) > shards_on(node))
    for (const auto& replica : active_.replicas) using_it.insert(replica.id);
  return {using_it.begin(), using_it.end()};
}

std::vector<std::string> PlacementVersions::parts_on(NodeId node) const {
  std::vector<std::string> parts;
  std::size_t shards = 0;
  for (const auto& shard : active_.shards) {
    if (shard.device.node != node || ++shards > kPartsNamedMax) continue;
    parts.push_back("layers " + std::to_string(shard.first_layer) + "-" +
                    std::to_string(shard.last_layer) + rank_text(active_, shard) + " of replica " +
                    std::to_string(shard.replica));
  }
  if (shards > kPartsNamedMax) parts.push_back(counted(shards - kPartsNamedMax, "more shard"));
  std::size_t here = 0, only_here = 0;
  for (const auto& layer : active_.experts) {
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

// ------------------------------------------------------------------------------------------------

void PlacementVersions::arrange_wake(SupervisorEffects& effects) const {
  for (const auto& [node, loading] : loading_) {
    if (loading.done || loading.behind) continue;
    effects.wake_at(loading.deadline);
    if (loading.silent_from) effects.wake_at(*loading.silent_from);
    if (loading.behind_from) effects.wake_at(*loading.behind_from);
  }
  if (!settling_.empty()) effects.wake_at(settle_deadline_);
  if (next_ == Next::kWaits) effects.wake_at(retry_at_);
}

std::string PlacementVersions::violation(const Membership& members) const {
  if ((next_ == Next::kLoads) == loading_.empty()) return "A version loads on nobody.";
  if (next_ != Next::kLoads && (in_force_ == InForce::kSettling) == settling_.empty())
    return "A version settles nowhere.";
  if (next_ == Next::kLoads && pending_.version <= active_.version)
    return "The version that loads is older than the one in force.";
  if (std::max(pending_.version.value, active_.version.value) >= next_version_)
    return "A version has a number that is not given yet.";
  if (serves_ && active_.replicas.empty()) return "It serves without a replica.";
  for (const auto& [node, loading] : loading_)
    if (!members.find(node)) return to_string(node) + " is to load a version and no member.";
  for (const NodeId node : settling_)
    if (!members.find(node)) return to_string(node) + " is to settle and no member.";
  for (const Placement* placement : {&active_, &pending_})
    for (const auto& replica : placement->replicas)
      if (replica.id >= next_replica_)
        return "Replica " + std::to_string(replica.id) + " has an id that is not given yet.";
  return {};
}

}  // namespace troupe
