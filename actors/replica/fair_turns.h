#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "actors/replica/plan_step.h"
#include "runtime/key_share.h"

namespace troupe {

/// Arrivals that a sequence's key can hold: two years of a million a second.
inline constexpr int kArrivalBits = 41;
inline constexpr std::uint64_t kArrivals = std::uint64_t{1} << kArrivalBits;
static_assert(kPriorityMax < 1 << 20);

/// A sequence's place in its owner's queue; smaller ones go first: replays, since somebody reads
/// them already, then those with a lower priority, then by arrival. Never 0.
constexpr std::uint64_t queue_key(bool replay, std::int32_t priority, std::uint64_t arrival) {
  const auto rank = static_cast<std::uint64_t>(priority + (1 << 20));
  return (replay ? 0 : std::uint64_t{1} << 62) + (rank << kArrivalBits) + arrival % kArrivals;
}

/// Owners that a replica remembers; the longest idle of more are as if they had never been here.
inline constexpr std::size_t kOwnersServedMax = 4096;

/// When each owner had a sequence admitted the last time, also of those who have nothing here now:
/// or whoever asks one thing after another would always be new.
class LastServed {
 public:
  void note(std::uint64_t owner);
  /// 0: never.
  std::uint64_t of(std::uint64_t owner) const;
  /// Whether more than one was served lately.
  bool several() const { return other_ != 0 && next_ - other_ <= kLately; }

 private:
  static constexpr std::uint64_t kLately = 1024;  ///< admissions

  std::map<std::uint64_t, std::uint64_t> at_;
  std::uint64_t next_ = 1;
  std::uint64_t newest_ = 0;  ///< who was served last
  std::uint64_t other_ = 0;   ///< when somebody else was
};

/// Gives running and waiting sequences their turns (PlanSequence::begins, ends, reach), and sorts
/// both by them.
///
/// A turn is as long as what its sequence holds of the replica, by the owner's weight: the larger
/// of its parts of the `places` for sequences that run, and of all `blocks`. The turns of an owner
/// follow each other from 0 on, in the order of their keys. So of all owners those go first that
/// have the least before them; of turns that begin together, of those that run the one whose owner
/// asks for less, of those that wait the one whose owner was served longest ago, then the first to
/// arrive. With one owner, it is the order of keys.
///
/// A turn depends on nothing but who is here: nobody owes anything for yesterday. Who was served
/// last decides only between equals, so that nothing need be restored after a loss.
void take_turns(std::vector<PlanSequence>& running, std::vector<PlanSequence>& waiting,
                std::int32_t places, std::int32_t blocks, std::int32_t block_size);

/// Who has to give up its place and its blocks, so that the first who waits can join: sequences
/// whose turns come after the whole of the newcomer's, its owner's own too (those behind a lower
/// priority). The last turns go first, so an owner keeps its first sequence in any case. If that
/// does not make room, it is tried for those who may go ahead of it (Backfill). None if it makes
/// room for nobody, or if there is room. Both are sorted by turns.
std::vector<std::uint64_t> who_gives_way(std::span<const PlanSequence> running,
                                         std::span<const PlanSequence> waiting,
                                         const PlanLimits& limits, const PlanQuestions& ask);

}  // namespace troupe
