#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/supervisor/goal.h"
#include "actors/supervisor/versions.h"

namespace troupe {

/// Drains and rebalances that clients asked for, and how far they are.
///
///     asked ──► progress ──► ... ──► finished: done, or with the error that ended it
class Operations {
 public:
  /// Why that node cannot be drained.
  Status check_drain(NodeId node, const Membership& members, bool stopping) const;
  /// kResourceExhausted while there are too many.
  Status check_room() const;
  void drain(std::uint32_t session, const DrainQuery& query, const PlacementVersions& versions);
  void rebalance(std::uint32_t session, const RebalanceQuery& query);

  /// Tells how far they are; rebalances that have come to their end are over.
  void report(const PlacementVersions& versions, const PlacementGoal& goal, SupervisorTurn& turn);
  void fail_drain(NodeId node, const Error& error, SupervisorEffects& effects);
  void fail_rebalances(const Error& error, SupervisorEffects& effects);
  /// A node has left or was lost: its drain is over.
  void node_gone(NodeId node, bool orderly, SupervisorEffects& effects);
  void session_ended(std::uint32_t session);

  /// Tells a client that its query is refused.
  static void refuse(std::uint32_t session, std::uint64_t query, const Error& error,
                     SupervisorEffects& effects);
  std::string violation(const Membership& members, const Sessions& sessions) const;

 private:
  struct Operation {
    std::uint32_t session = 0;
    std::uint64_t query = 0;
    std::optional<NodeId> drains;  ///< none: it rebalances
    std::size_t total = 0;         ///< copies that have to move
    std::size_t said = 0;          ///< copies left, as told last
  };
  std::vector<Operation> operations_;
};

}  // namespace troupe
