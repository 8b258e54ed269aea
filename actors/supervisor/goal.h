#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <string>
#include <utility>

#include "runtime/clock.h"
#include "runtime/placement.h"

namespace troupe {

/// Where the placement is to get to, step by step.
///
///     to be made ── set ──► ahead ── its last step is in force ──► reached
///         ▲                   │                                      │
///         └────── change ─────┴──────────────────────────────────────┘
class PlacementGoal {
 public:
  enum class State : std::uint8_t { kToBeMade, kAhead, kReached };

  State state() const { return state_; }
  bool reached() const { return state_ == State::kReached; }
  const Placement& placement() const {
    assert(state_ == State::kAhead);
    return placement_;
  }
  /// No step towards it begins before.
  TimePoint not_before() const { return not_before_; }

  void set(Placement placement) { become(State::kAhead, std::move(placement)); }
  void reach() { become(State::kReached, {}); }
  void discard() { become(State::kToBeMade, {}); }
  /// Something has changed, so that another goal may be better.
  void change(TimePoint not_before) {
    discard();
    not_before_ = std::max(not_before_, not_before);
  }
  void wait_until(TimePoint time) { not_before_ = time; }

  /// Copies of experts that the goal has and `active` lacks.
  std::size_t moves_pending(const Placement* active) const;

  std::string violation() const {
    return state_ != State::kAhead && !(placement_ == Placement{})
               ? "There is a goal and none is ahead."
               : "";
  }

 private:
  void become(State state, Placement placement) {
    state_ = state;
    placement_ = std::move(placement);
  }

  State state_ = State::kToBeMade;
  Placement placement_;
  TimePoint not_before_{};
};

/// Copies of experts that `after` has and `before` lacks.
std::size_t copies_added(const Placement& before, const Placement& after);

}  // namespace troupe
