#pragma once

#include <cstddef>
#include <map>

#include "actors/supervisor/pair_rounds.h"
#include "runtime/clock.h"
#include "transport/link_messages.h"

namespace troupe {

/// What came of the last measurement of each pair of members, while both live the life in which it
/// was measured.
class LinkRecord {
 public:
  /// All pairs of 45 nodes. Beyond it the one that was measured first goes: every status tells all.
  static constexpr std::size_t kPairsMax = 1024;

  struct Last {
    PairReport report;
    TimePoint time;
  };
  /// A pair that has no connection any more has no figures either.
  void keep(const PairReport& report, TimePoint now);
  /// That member is in the cluster no more, or not in that life.
  void forget(NodeId node);
  const std::map<NodePair, Last>& all() const { return pairs_; }

 private:
  std::map<NodePair, Last> pairs_;
};

}  // namespace troupe
