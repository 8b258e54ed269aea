#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "actors/replica/plan_step.h"

namespace troupe {

/// So many newcomers go ahead of one that does not fit; then what comes free is kept for it. Enough
/// that owners who ask now and then hardly meet it, and an end within some answers' time.
inline constexpr std::int32_t kBackfillsMax = 64;

/// Those who wait and do not fit now, so that others may take what they cannot: the first of owners
/// who have nothing here yet.
class Backfill {
 public:
  /// Does not fit; it must stay where it is.
  void hold(const PlanSequence& sequence) { held_.push_back(&sequence); }
  const std::vector<const PlanSequence*>& held() const { return held_; }

  /// Whether one behind them may join, if it fits.
  bool admits(const PlanSequence& sequence) const {
    const auto keeps_back = [&](const PlanSequence* held) {
      return held->owner == sequence.owner || held->backfills >= kBackfillsMax;
    };
    return held_.empty() || (sequence.begins == 0 && std::ranges::none_of(held_, keeps_back));
  }

 private:
  std::vector<const PlanSequence*> held_;
};

}  // namespace troupe
