#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "actors/interfaces.h"
#include "actors/router/request_book.h"
#include "runtime/clock.h"

namespace troupe {

/// How long a crash may be told after the loss: the report's own deadline, and room.
inline constexpr Duration kCrashReportWait = std::chrono::seconds(10);
/// Losses that are remembered; far more than happen within that time.
inline constexpr std::size_t kLossesMax = 64;
/// Crashes in company that convict a suspect although innocent sequences ran beside it: under
/// steady traffic it would never be alone.
inline constexpr std::uint32_t kStrikesInCompanyMax = 4;

/// Which sequences may have crashed a worker. A part of the Router. Only a crash is evidence: a
/// worker that was killed, hung or cut off says nothing about what it computed.
///
///     LifeLost ─► remember who was in a step there ─┬─ LifeCrashed ─► strike ─► suspect ─► guilty
///                                                   └─ nothing comes: forgotten
class CrashEvidence {
 public:
  struct Verdict {
    std::vector<SequenceId> suspects;                        ///< to be tried one at a time
    std::vector<std::pair<std::uint64_t, Error>> convicted;  ///< requests that must not run again
  };

  /// Before the replicas' sequences are taken back. A new token clears a sequence from here on.
  void note_loss(RequestBook& book, const LifeLost& lost, TimePoint now);
  /// Strikes those that were in a step there and gave no token since. Once a life.
  Verdict note_crash(RequestBook& book, const LifeCrashed& crashed, TimePoint now);

  std::size_t losses() const { return losses_.size(); }

 private:
  struct Held {
    SequenceId sequence;
    std::size_t tokens = 0;  ///< of its output then
  };
  struct Loss {
    Incarnation life;
    TimePoint at{};
    std::size_t there = 0;   ///< sequences that had been handed over; word of their start may lack
    std::vector<Held> held;  ///< of these, those that had begun without a token since
  };
  void forget_old(TimePoint now);

  std::deque<Loss> losses_;  ///< the newest last
};

}  // namespace troupe
