#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/supervisor/link_record.h"
#include "actors/supervisor/pair_rounds.h"
#include "actors/supervisor/turn.h"

namespace troupe {

/// The measurement of the connections between members that a client asked for; one at a time.
///
///     NetworkQuery ─► NetworkPlan
///        ▼ round:  MeasureLink to the lower node of each pair ─► LinkMeasured ─► PairReport
///        ▼          all pairs of the round are over: OperationProgress, the next round
///     finished     (a pair is over, too, when one of its nodes goes, or at its deadline)
///
/// It changes nothing of what serves: members measure connections that they have.
class NetworkBench {
 public:
  /// A member gives up sooner; this one is for when it says nothing.
  static constexpr Duration kPairDeadline = std::chrono::seconds(8);

  /// Begins it, or tells the client why not.
  /// `at_rest`: no weights are loaded or moved.
  void begin(std::uint32_t session, const NetworkQuery& query, bool stopping, bool at_rest,
             SupervisorTurn& turn);
  void measured(const Member& member, const LinkMeasured& measured, SupervisorTurn& turn);
  /// That member is in the cluster no more.
  void member_gone(NodeId node, const std::string& reason, SupervisorTurn& turn);
  /// The client has gone: nobody wants it any more.
  void session_ended(std::uint32_t session, SupervisorTurn& turn);
  /// The cluster stops.
  void stop(SupervisorTurn& turn);
  void on_wake(SupervisorTurn& turn);

  const LinkRecord& record() const { return record_; }
  void arrange_wake(SupervisorEffects& effects) const;
  std::string violation(const Membership& members, const Sessions& sessions) const;

 private:
  struct Measuring {
    NodePair pair;
    TimePoint deadline;
  };
  struct Bench {
    std::uint32_t session = 0;
    NetworkQuery query;
    PairRounds plan;
    std::map<NodeId, Incarnation> lives;  ///< of its nodes, when it began
    std::map<NodeId, std::string> gone;   ///< of them, and why
    std::size_t rounds = 0;               ///< begun
    std::size_t pairs = 0;                ///< over
    std::uint32_t running = 0;            ///< sequences, at most, since the round began
  };
  using Pairs = std::map<std::uint64_t, Measuring>;

  static Status check(const NetworkQuery& query, bool stopping, bool at_rest,
                      const Membership& members);
  void go_on(SupervisorTurn& turn);
  void begin_round(SupervisorTurn& turn);
  void report(const NodePair& pair, LinkFigures figures, std::optional<Error> error,
              SupervisorTurn& turn);
  void end_all(SupervisorTurn& turn);
  void end_measure(const Pairs::value_type& measuring, SupervisorTurn& turn) const;
  std::string why_gone(NodeId node, const Membership& members) const;

  std::optional<Bench> bench_;
  Pairs measuring_;  ///< of the round, by number
  std::uint64_t last_number_ = 0;
  LinkRecord record_;
};

}  // namespace troupe
