#include "actors/replica/fair_turns.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "actors/replica/backfill.h"

namespace troupe {

void LastServed::note(std::uint64_t owner) {
  if (owner != newest_) other_ = next_ - 1;
  newest_ = owner;
  at_[owner] = next_++;
  if (at_.size() > kOwnersServedMax)
    at_.erase(std::ranges::min_element(at_, {}, [](const auto& entry) { return entry.second; }));
}

std::uint64_t LastServed::of(std::uint64_t owner) const {
  const auto found = at_.find(owner);
  return found == at_.end() ? 0 : found->second;
}

void take_turns(std::vector<PlanSequence>& running, std::vector<PlanSequence>& waiting,
                std::int32_t places, std::int32_t blocks, std::int32_t block_size) {
  std::vector<PlanSequence*> all;
  for (PlanSequence& sequence : running) all.push_back(&sequence);
  for (PlanSequence& sequence : waiting) all.push_back(&sequence);
  std::ranges::sort(all, {}, [](const PlanSequence* sequence) { return sequence->key; });
  std::map<std::uint64_t, double> next, reach;  // by owner
  for (PlanSequence* sequence : all) {
    const double part = std::max(1.0 / places, static_cast<double>(blocks_for(
                                                   sequence->length, block_size)) /
                                                   blocks);
    double& begins = next[sequence->owner];
    sequence->begins = begins;
    sequence->ends = begins += part / sequence->weight;
    reach[sequence->owner] = sequence->begins;
  }
  for (PlanSequence* sequence : all) sequence->reach = reach[sequence->owner];
  const auto arrival = [](const PlanSequence& s) { return s.key % kArrivals; };
  std::ranges::sort(running, {}, [&](const PlanSequence& s) {
    return std::tuple(s.begins, s.reach, arrival(s));
  });
  std::ranges::sort(waiting, {}, [&](const PlanSequence& s) {
    return std::tuple(s.begins, s.served, arrival(s));
  });
}

namespace {

/// What a replica has for a newcomer, and who would have to go.
struct ReplicaRoom {
  std::span<const PlanSequence> running;
  const PlanLimits& limits;
  const PlanQuestions& ask;
  std::int32_t places = 0;
  std::int32_t blocks = 0;  ///< beside what those who stay know already

  std::int32_t missing(const PlanSequence& s) const {
    return std::max(0, blocks_for(s.length, limits.block_size) - s.blocks);
  }
  bool has_place_for(const PlanSequence& newcomer) const {
    if (places <= 0) return false;
    if (blocks >= missing(newcomer)) return true;
    const KvPrefix found = ask.cached(newcomer.key);
    return blocks >= found.idle + std::max(0, missing(newcomer) - found.blocks);
  }
  /// None: it would not be enough.
  std::vector<std::uint64_t> leave_for(const PlanSequence& newcomer) const {
    std::vector<std::uint64_t> leaving;
    std::int32_t places_left = places;
    // What it shares with one that leaves is nobody's then, and taken by it.
    std::int32_t blocks_left = blocks - missing(newcomer);
    std::int32_t freed = 0;
    for (auto last = running.rbegin(); places_left <= 0 || blocks_left + freed < 0; ++last) {
      if (last == running.rend() || last->begins < newcomer.ends) return {};
      if (last->busy) continue;
      leaving.push_back(last->key);
      ++places_left;
      blocks_left += missing(*last);
      freed = ask.freed(leaving);
    }
    return leaving;
  }
};

}  // namespace

std::vector<std::uint64_t> who_gives_way(std::span<const PlanSequence> running,
                                         std::span<const PlanSequence> waiting,
                                         const PlanLimits& limits, const PlanQuestions& ask) {
  ReplicaRoom room{running, limits, ask};
  room.places = limits.sequences_running - static_cast<std::int32_t>(running.size());
  room.blocks = limits.blocks_free;
  for (const PlanSequence& sequence : running) room.blocks -= room.missing(sequence);
  Backfill backfill;
  for (const PlanSequence& newcomer : waiting) {
    if (!backfill.admits(newcomer)) continue;
    if (room.has_place_for(newcomer)) return {};
    if (auto leaving = room.leave_for(newcomer); !leaving.empty()) return leaving;
    backfill.hold(newcomer);
  }
  return {};
}

}  // namespace troupe
