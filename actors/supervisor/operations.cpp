#include "actors/supervisor/operations.h"

#include <algorithm>

#include "runtime/counted.h"

namespace troupe {
namespace {

constexpr std::size_t kOperationsMax = 64;  ///< at a time, of all clients

OperationProgress failed(std::uint64_t query, std::size_t total, const Error& error) {
  return {query, 0, total, error.message, true, error};
}

}  // namespace

Status Operations::check_drain(NodeId node, const Membership& members, bool stopping) const {
  const Member* member = members.find(node);
  if (!member) {
    std::string names;
    for (const auto& [id, m] : members.all()) names += (names.empty() ? "" : ", ") + to_string(id);
    return not_found("There is no " + to_string(node) + " in the cluster" +
                     (names.empty() ? "." : "; its nodes are " + names + "."));
  }
  if (stopping) return unavailable("The cluster is stopping.");
  if (member->state == MemberState::kDraining)
    return invalid_argument(to_string(node) + " is being drained already.");
  const bool others = std::any_of(members.all().begin(), members.all().end(), [&](const auto& m) {
    return m.first != node && m.second.state != MemberState::kDraining;
  });
  if (!others)
    return invalid_argument(to_string(node) +
                            " is the last worker; add another before you drain it, or end the "
                            "cluster with troupe stop.");
  return check_room();
}

Status Operations::check_room() const {
  if (operations_.size() >= kOperationsMax)
    return resource_exhausted("Too many operations run at once; try again later.");
  return {};
}

void Operations::refuse(std::uint32_t session, std::uint64_t query, const Error& error,
                        SupervisorEffects& effects) {
  send_to_session(effects, session, failed(query, 0, error));
}

void Operations::drain(std::uint32_t session, const DrainQuery& query,
                       const PlacementVersions& versions) {
  const std::size_t total = versions.pieces_on(query.node);
  operations_.push_back({session, query.query, query.node, total, total});
}

void Operations::rebalance(std::uint32_t session, const RebalanceQuery& query) {
  operations_.push_back({session, query.query, std::nullopt, 0, 0});
}

void Operations::report(const PlacementVersions& versions, const PlacementGoal& goal,
                        SupervisorTurn& turn) {
  std::erase_if(operations_, [&](Operation& operation) {
    const bool drain = operation.drains.has_value();
    const std::size_t left =
        drain ? versions.pieces_on(*operation.drains) : goal.moves_pending(versions.active());
    operation.total = std::max(operation.total, left);
    const bool done = !drain && goal.reached() && versions.quiet();
    if (!done && left == operation.said) return false;
    operation.said = left;
    OperationProgress news{operation.query, operation.total - left, operation.total, {}, done, {}};
    news.text = done ? (operation.total == 0 ? "Nothing had to move."
                                             : "Moved " + counted_copies(operation.total) + ".")
                     : counted_copies(left) + " left to move.";
    if (done) turn.record("rebalance", news.text);
    send_to_session(turn.effects, operation.session, std::move(news));
    return done;
  });
}

void Operations::fail_drain(NodeId node, const Error& error, SupervisorEffects& effects) {
  std::erase_if(operations_, [&](const Operation& operation) {
    if (operation.drains != node) return false;
    send_to_session(effects, operation.session, failed(operation.query, operation.total, error));
    return true;
  });
}

void Operations::fail_rebalances(const Error& error, SupervisorEffects& effects) {
  std::erase_if(operations_, [&](const Operation& operation) {
    if (operation.drains) return false;
    send_to_session(effects, operation.session, failed(operation.query, operation.total, error));
    return true;
  });
}

void Operations::node_gone(NodeId node, bool orderly, SupervisorEffects& effects) {
  std::erase_if(operations_, [&](const Operation& operation) {
    if (operation.drains != node) return false;
    OperationProgress news{operation.query, operation.total, operation.total, {}, true, {}};
    news.text = orderly ? to_string(node) + " has left; its machine may be switched off."
                        : to_string(node) +
                              " was lost before it was drained; what it held is "
                              "restored elsewhere.";
    send_to_session(effects, operation.session, std::move(news));
    return true;
  });
}

void Operations::session_ended(std::uint32_t session) {
  std::erase_if(operations_, [&](const auto& operation) { return operation.session == session; });
}

std::string Operations::violation(const Membership& members, const Sessions& sessions) const {
  if (operations_.size() > kOperationsMax) return "There are more operations than there may be.";
  for (const Operation& operation : operations_) {
    const auto* session = sessions.find(operation.session);
    if (!session || session->kind != Sessions::Kind::kClient)
      return "An operation has no client to tell.";
    if (operation.said > operation.total) return "An operation has more left than it has at all.";
    if (!operation.drains) continue;
    const Member* member = members.find(*operation.drains);
    if (!member || member->state != MemberState::kDraining)
      return to_string(*operation.drains) + " has a drain under way and does not drain.";
  }
  return {};
}

}  // namespace troupe
