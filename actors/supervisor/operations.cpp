#include <algorithm>

#include "actors/supervisor/supervisor.h"

// Drains and rebalances that somebody asked for, and what he is told of them.

namespace troupe {
namespace {

constexpr std::size_t kOperationsMax = 64;  ///< at a time, of all clients

OperationProgress failed(std::uint64_t query, std::size_t total, const Error& error) {
  return {query, 0, total, error.message, true, error};
}

std::string pieces(std::size_t n) { return std::to_string(n) + (n == 1 ? " piece" : " pieces"); }

}  // namespace

/// Shards and copies of experts that lie on a node.
std::size_t Supervisor::pieces_on(NodeId node) const {
  std::size_t count = 0;
  for (const Placement* placement : {active(), pending()}) {
    if (!placement) continue;
    std::size_t here = 0;
    for (const auto& shard : placement->shards) here += shard.device.node == node ? 1 : 0;
    for (const auto& layer : placement->experts)
      for (const auto& slot : layer.slots) here += slot.device.node == node ? 1 : 0;
    count = std::max(count, here);
  }
  return count;
}

void Supervisor::on_drain(std::uint32_t session, const DrainQuery& query, TimePoint now,
                          SupervisorActions& actions) {
  const auto refuse = [&](const Error& error) {
    actions.send(session_address(session), failed(query.query, 0, error));
  };
  const auto it = members_.find(query.node);
  if (it == members_.end()) {
    std::string names;
    for (const auto& [id, member] : members_) names += (names.empty() ? "" : ", ") + to_string(id);
    return refuse(not_found("There is no " + to_string(query.node) + " in the cluster" +
                            (names.empty() ? "." : "; its nodes are " + names + ".")));
  }
  Member& member = it->second;
  if (state_ == ClusterState::kStopping) return refuse(unavailable("The cluster is stopping."));
  if (member.state == MemberState::kDraining)
    return refuse(invalid_argument(to_string(query.node) + " is being drained already."));
  const bool others = std::any_of(members_.begin(), members_.end(), [&](const auto& m) {
    return m.first != query.node && m.second.state != MemberState::kDraining;
  });
  if (!others)
    return refuse(invalid_argument(to_string(query.node) +
                                   " is the last worker; add another before you drain it, or end "
                                   "the cluster with troupe stop."));
  if (operations_.size() >= kOperationsMax)
    return refuse(resource_exhausted("Too many operations run at once; try again later."));
  member.state = MemberState::kDraining;
  change_goal(now);
  const std::size_t total = pieces_on(query.node);
  operations_.push_back({session, query.query, query.node, total, total});
  record("drain", to_string(query.node) + " is being drained.", now, actions);
  actions.send(session_address(session),
               OperationProgress{query.query, 0, total,
                                 pieces(total) + " to move off " + to_string(query.node) + ".",
                                 false, std::nullopt});
  consider(now, actions);
  report_operations(now, actions);
}

void Supervisor::on_rebalance(std::uint32_t session, const RebalanceQuery& query, TimePoint now,
                              SupervisorActions& actions) {
  const auto refuse = [&](const Error& error) {
    actions.send(session_address(session), failed(query.query, 0, error));
  };
  if (!active_ || !serves_)
    return refuse(unavailable("There is nothing to rebalance yet: " + message_));
  if (operations_.size() >= kOperationsMax)
    return refuse(resource_exhausted("Too many operations run at once; try again later."));
  operations_.push_back({session, query.query, std::nullopt, 0, 0});
  change_goal(now);
  balance_asked_ = true;
  for (const auto& layer : active_->experts) balance_left_.insert(layer.layer);
  improve_at_ = now;
  record("rebalance", "A rebalance was asked for.", now, actions);
  consider(now, actions);
  report_operations(now, actions);
}

/// A node cannot be spared: it serves on.
void Supervisor::fail_drains(const Error& error, TimePoint now, SupervisorActions& actions) {
  for (auto& [device, speed] : speeds_)
    if (std::exchange(speed.drained, false)) speed.slow_since = now;
  for (auto& [id, member] : members_) {
    if (member.state != MemberState::kDraining) continue;
    member.state = MemberState::kReady;
    const Error told{error.code, to_string(id) + " cannot be drained: " + error.message};
    record("drain", told.message, now, actions);
    std::erase_if(operations_, [&](const Operation& operation) {
      if (operation.drains != id) return false;
      actions.send(session_address(operation.session),
                   failed(operation.query, operation.total, told));
      return true;
    });
  }
}

void Supervisor::fail_rebalances(const Error& error, SupervisorActions& actions) {
  std::erase_if(operations_, [&](const Operation& operation) {
    if (operation.drains) return false;
    actions.send(session_address(operation.session),
                 failed(operation.query, operation.total, error));
    return true;
  });
}

/// Tells how far they are. A drained node that holds nothing more is told to end.
void Supervisor::report_operations(TimePoint now, SupervisorActions& actions) {
  const bool quiet = !pending_ && settling_.empty();
  for (auto& [id, member] : members_) {
    if (member.state != MemberState::kDraining || !quiet || member.told_to_end) continue;
    if (pieces_on(id) > 0) continue;
    member.told_to_end = true;
    actions.send(member_address(member), Stop{"it was drained"});
  }
  std::erase_if(operations_, [&](Operation& operation) {
    const bool drain = operation.drains.has_value();
    const std::size_t left = drain ? pieces_on(*operation.drains) : moves_pending();
    operation.total = std::max(operation.total, left);
    const bool done = !drain && goal_reached_ && quiet;
    if (!done && left == operation.said) return false;
    operation.said = left;
    OperationProgress news{operation.query, operation.total - left, operation.total, {}, done, {}};
    news.text = done ? (operation.total == 0 ? "Nothing had to move."
                                             : "Moved " + pieces(operation.total) + ".")
                     : pieces(left) + " left to move.";
    if (done) record("rebalance", news.text, now, actions);
    actions.send(session_address(operation.session), std::move(news));
    return done;
  });
}

/// A node has left or was lost: its drain is over.
void Supervisor::node_gone(NodeId node, bool orderly, SupervisorActions& actions) {
  std::erase_if(operations_, [&](const Operation& operation) {
    if (operation.drains != node) return false;
    OperationProgress news{operation.query, operation.total, operation.total, {}, true, {}};
    news.text = orderly ? to_string(node) + " has left; its machine may be switched off."
                        : to_string(node) +
                              " was lost before it was drained; what it held is "
                              "restored elsewhere.";
    actions.send(session_address(operation.session), std::move(news));
    return true;
  });
}

}  // namespace troupe
