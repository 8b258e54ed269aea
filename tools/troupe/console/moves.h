#pragma once

#include <deque>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "tools/troupe/console/facts.h"

namespace troupe::console {

/// A copy of an expert that is elsewhere than it was. Without `from` it is a new copy, without `to`
/// one that was dropped.
struct Move {
  std::int64_t layer = 0;
  std::int32_t expert = 0;
  std::string from, to;
  bool operator==(const Move&) const = default;
};

/// What turned one placement into the next. Nothing when one of them is empty: the cluster was
/// formed, or lost, which is no move.
std::vector<Move> moves_between(const ExpertFacts& before, const ExpertFacts& after);

/// The moves of the last seconds, so that they can be seen.
class MoveLog {
 public:
  /// How long a move is shown.
  static constexpr Duration kShown = std::chrono::seconds(8);
  static constexpr std::size_t kKeptMax = 4096;  ///< a rebalance of a V3 moves no more at once

  struct Entry {
    Move move;
    TimePoint at;
  };

  void add(const ExpertFacts& before, const ExpertFacts& after, TimePoint now);
  void forget_old(TimePoint now);

  const std::deque<Entry>& recent() const { return recent_; }
  std::uint64_t total() const { return total_; }  ///< since the console was started
  /// For each of a layer's experts: did a copy of it move?
  std::vector<bool> moved(std::int64_t layer, std::int32_t experts) const;

 private:
  std::deque<Entry> recent_;  // the oldest first
  std::uint64_t total_ = 0;
};

}  // namespace troupe::console
