#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/ids.h"
#include "runtime/sampling_params.h"

namespace troupe {

/// One sequence's share of a step: some consecutive positions of it, as rows to compute.
struct StepSequence {
  SequenceId id;
  /// Block of every position from 0 on, as far as this step reaches: position p lives in
  /// block_table[p / block_size], row p % block_size of it. Blocks are those of every shard's pool
  /// alike. On its way to a shard only what is new: see table_base.
  std::vector<std::int32_t> block_table;
  /// Position of tokens[0]; everything before it is in the KV cache.
  std::int32_t first_position = 0;
  std::vector<TokenId> tokens;     ///< the rows of this step, at least one
  std::int32_t prompt_length = 0;  ///< positions below it are prompt; the others were generated
  SamplingParams sampling;         ///< on its way to a shard, rules come with a whole table only
  bool sample = false;             ///< the last row yields a new token
  bool prompt_logprobs = false;    ///< rows with a target also yield that token's log-probability
  std::vector<TokenId> targets;    ///< with prompt_logprobs: what follows each row, or -1
  bool canary = false;             ///< its rows are hashed at the boundaries of layers
  /// Where the shards keep its table: no two sequences that run share a slot.
  std::int32_t table_slot = 0;
  /// On its way to a shard: so many blocks come before block_table, as the shard's slot has them.
  /// 0: the table is whole.
  std::int32_t table_base = 0;
  std::int32_t hidden_rows = 0;  ///< so many of the last rows yield their hidden states
  bool operator==(const StepSequence&) const = default;
};

/// What one pass over the layers computes; the order of sequences changes no number.
struct StepPlanBody {
  StepId step;
  std::vector<StepSequence> sequences;
  bool express = false;  ///< on each device it passes other steps between their layers
  bool operator==(const StepPlanBody&) const = default;
};

/// What a step found out about one sequence.
struct SequenceResult {
  SequenceId id;
  std::optional<TokenOutput> sampled;  ///< the new token, if the sequence asked for one
  /// With prompt_logprobs: one a row, none where the target is -1.
  std::vector<std::optional<TokenOutput>> prompt;
  std::string trouble = {};  ///< why this sequence has no numbers in this step; empty: it has
  bool waits = false;        ///< its new token is not known yet: the last row is to be asked again
  std::vector<float> hidden = {};  ///< [hidden_rows, model's width], behind the final norm
  bool unanswerable = false;       ///< the trouble is what it asks for, and will be in any step
  bool operator==(const SequenceResult&) const = default;
};

}  // namespace troupe
