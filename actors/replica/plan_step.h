#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "actors/replica/kv_blocks.h"

namespace troupe {

/// What the planner needs to know of one sequence.
struct PlanSequence {
  std::uint64_t key = 0;      ///< see queue_key()
  std::int32_t computed = 0;  ///< positions in the KV cache
  std::int32_t length = 0;    ///< tokens known: at least one more than `computed`
  std::int32_t blocks = 0;    ///< KV blocks held
  bool busy = false;          ///< in a step that has not come back, or suspect
  std::uint64_t owner = 0;    ///< whose it is
  float weight = 1;           ///< the owner's
  double begins = 0, ends = 0;  ///< its turn, see take_turns()
  double reach = 0;             ///< where the last turn of its owner begins
  std::uint64_t served = 0;     ///< when one of its owner's was admitted, see LastServed
  std::int32_t backfills = 0;   ///< newcomers that went ahead of it, since it did not fit
  bool suspect = false;         ///< it is computed alone, in steps of its own
  /// It has one row to compute, whose token somebody waits for.
  bool decodes() const { return length - computed == 1; }
  bool operator==(const PlanSequence&) const = default;
};

struct PlanLimits {
  std::int32_t sequences_running = 0;  ///< at once, over all steps
  std::int32_t sequences_a_step = 0;
  std::int32_t rows_a_step = 0;
  std::int32_t block_size = 1;
  std::int32_t blocks_free = 0;  ///< that can be taken
  /// Of the rows, those of sequences that lack more than one.
  std::int32_t prompt_rows_a_step = std::numeric_limits<std::int32_t>::max();
};

/// What the planner asks about blocks, only where it matters.
struct PlanQuestions {
  /// What a waiting sequence would find of its rows.
  std::function<KvPrefix(std::uint64_t key)> cached;
  /// The blocks that can be taken once all of these have given theirs back.
  std::function<std::int32_t(std::span<const std::uint64_t> keys)> freed;
};

struct PlannedRows {
  std::uint64_t key = 0;
  std::int32_t rows = 0;        ///< from `computed` on, or from the end of what it found
  std::int32_t blocks_new = 0;  ///< to take before
  KvPrefix found = {};          ///< to share before that; only of one that waited
  bool operator==(const PlannedRows&) const = default;
};

struct StepChoice {
  std::vector<std::uint64_t> preempted;  ///< give their blocks back first; they wait again
  std::vector<PlannedRows> rows;
  /// Went ahead of by a newcomer; as often as it was.
  std::vector<std::uint64_t> backfilled = {};
  bool operator==(const StepChoice&) const = default;
};

/// Plans one step: continuous batching with chunked prefill.
///
///   1. Running sequences in the order of their turns. One with a single row to compute (decoding)
///      gets it; of the rows that are left over by those, up to prompt_rows_a_step are shared out
///      as prefill chunks. A long prompt leaves half of each to those behind it, so that nobody
///      waits for the whole of it; any prompt does to those of other owners. Those over which
///      another one of the step goes ahead (goes_ahead_of()) have an eighth of the rows together.
///   2. If blocks run out, the last of the running ones gives its own up and computes them again
///      later. While a sequence lacks blocks, later ones do not go ahead of it: so the first always
///      comes to its end, and blocks free up.
///   3. Waiting sequences join, in order, while the limits allow and all that they know fits. What
///      is found of their rows is not computed again. One that does not fit is not passed by those
///      behind it, but for a while by owners who have nothing here yet (Backfill).
///
/// `running` and `waiting` are ordered by turns, and every sequence alone fits into the pool.
StepChoice plan_step(std::span<const PlanSequence> running, std::span<const PlanSequence> waiting,
                     const PlanLimits& limits, const PlanQuestions& ask);

/// Of the owners with this reach or a farther one, the sequence goes ahead: they ask for more than
/// twice what its own does, and their last turn comes after the whole of its turn. Owners that ask
/// for about as much never go ahead of each other.
double goes_ahead_of(const PlanSequence& sequence);

/// Blocks that hold `positions` positions.
constexpr std::int32_t blocks_for(std::int32_t positions, std::int32_t block_size) {
  return (positions + block_size - 1) / block_size;
}

}  // namespace troupe
