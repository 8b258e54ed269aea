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
  std::uint64_t key = 0;      ///< order of arrival: earlier ones go first
  std::int32_t computed = 0;  ///< positions in the KV cache
  std::int32_t length = 0;    ///< tokens known: at least one more than `computed`
  std::int32_t blocks = 0;    ///< KV blocks held
  bool busy = false;          ///< in a step that has not come back
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
  bool operator==(const StepChoice&) const = default;
};

/// Plans one step: continuous batching with chunked prefill, first come, first served.
///
///   1. Running sequences in order of arrival. One with a single row to compute (decoding) gets it;
///      of the rows that are left over by those, up to prompt_rows_a_step are shared out as prefill
///      chunks. A long prompt leaves half of each to those behind it, so that nobody waits for the
///      whole of it.
///   2. If blocks run out, the latest to arrive of the running ones gives its own up and computes
///      them again later. While a sequence lacks blocks, later ones do not go ahead of it: so the
///      earliest always comes to its end, and blocks free up.
///   3. Waiting sequences join, in order, while the limits allow and all that they know fits. What
///      is found of their rows is not computed again.
///
/// `running` and `waiting` are ordered by key, and every sequence alone fits into the pool.
StepChoice plan_step(std::span<const PlanSequence> running, std::span<const PlanSequence> waiting,
                     const PlanLimits& limits, const PlanQuestions& ask);

/// Blocks that hold `positions` positions.
constexpr std::int32_t blocks_for(std::int32_t positions, std::int32_t block_size) {
  return (positions + block_size - 1) / block_size;
}

}  // namespace troupe
