#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/combine.h"
#include "kernels/stream.h"
#include "kernels/tensor.h"
#include "model/forward/chosen_layers.h"
#include "model/forward/expert_pairs.h"
#include "model/forward/rank_exchange.h"
#include "model/forward/row_trouble.h"
#include "runtime/result.h"
#include "runtime/step.h"

namespace troupe {

class KvCache;

/// A (row, slot) whose expert is elsewhere.
struct MissingExpert {
  std::int32_t row = 0;
  std::int32_t slot = 0;
  std::int32_t expert = 0;
};

/// A row whose logits are needed.
struct WantedRow {
  std::size_t sequence = 0;
  std::size_t row = 0;    ///< of the sequence
  std::size_t input = 0;  ///< of the step
  bool bad = false;       ///< its logits are no numbers
};

/// What a step in flight keeps on one shard, between the cuts of the forward pass. Make one per
/// step that may be in flight, and use it again: once warm, a step allocates nothing but its
/// results. `rows` are all tokens of all sequences, in the plan's order.
struct Step {
  /// Where it goes on. At those that say so ranks have told each other what they have.
  enum class At : std::uint8_t {
    kIdle,
    kTokens,
    kEmbedded,  ///< ranks: rows of the embedding
    kLayer,
    kAttended,  ///< ranks: parts of the attention's output
    kFeedForward,
    kAttendedRows,  ///< ranks: rows after it
    kMlp,           ///< ranks: parts of the dense MLP's
    kExperts,
    kOutputs,   ///< ranks: outputs of experts, parts of the shared experts' output
    kAnswers,   // outputs that were asked for beyond the ranks
    kGathered,  ///< ranks: rows after their experts
    kEndOfLayer,
    kHead,
    kLogits,    ///< ranks: logits
    kTogether,  ///< ranks: that they are done
    kDone,
  };

  const StepPlanBody* plan = nullptr;  ///< the caller keeps it until the step is done
  At at = At::kIdle;
  std::int32_t layer = 0;  ///< absolute
  std::int64_t rows = 0;
  std::int64_t width = 0;  ///< the model's hidden size
  std::int64_t top_k = 0;
  std::size_t wire_row_bytes = 0;  ///< of wire_row() and expert_output()

  std::vector<TokenId> tokens;              // [rows]
  std::vector<std::int32_t> positions;      // [rows]
  std::vector<const std::int32_t*> tables;  // [rows] into the plan

  // What lies in the device's memory: tensors, and what pairs point at.
  kernels::Stream::Room hidden_room, normed_room, branch_room;
  kernels::Tensor hidden;  ///< [rows, width]: the residual stream
  kernels::Tensor normed;  ///< [rows, width]: what attention or feed-forward reads
  kernels::Tensor branch;  ///< [rows, width]: what they give; the shared experts' output at a cut

  RankExchange exchange;        ///< at a cut for the other tensor-parallel ranks
  std::byte* own_at = nullptr;  // what this rank has of it, where ops reach it
  std::vector<kernels::Stream::Room> rank_rooms;  // what came from each rank, where ops reach it
  std::vector<const std::byte*> rank_at;          // by rank
  std::vector<std::int32_t> part_tokens;  // of this rank's part of the vocabulary, from its first
  std::vector<WantedRow> wanted;          // whose logits someone asked for
  std::size_t wanted_done = 0;
  std::int64_t logit_rows = 0;  // of them: whose logits are computed together
  bool among_ranks = false;
  std::int64_t own_first = 0;  ///< of the rows whose experts this rank asks for: all, of one rank
  std::int64_t own_rows = 0;

  // At a cut for experts:
  kernels::Stream::Room wire_room, outputs_room;
  kernels::Stream::Room gate_room;               // expert_weights, expert_ids
  kernels::Tensor wire;                          ///< [rows, width] wire type: the experts' input
  const std::byte* wire_host = nullptr;          ///< the same, for who asks elsewhere (on_missing)
  std::vector<std::int32_t> expert_ids;          ///< [rows, top_k], rising within a row
  std::vector<float> expert_weights;             ///< [rows, top_k]
  std::vector<const std::byte*> pair_rows;       // [rows * top_k]
  std::vector<std::byte*> pair_outputs;          // [rows * top_k]
  std::vector<MissingExpert> missing;            ///< the pairs whose experts are elsewhere
  std::vector<kernels::WeightedOutput> outputs;  // [rows * top_k], among ranks
  /// Count 0: the host knows what the layer's gate chose, and the lists above are true.
  kernels::ChosenRows chosen;
  ChosenLayers chosen_layers;

  // Among tensor-parallel ranks (RankExperts):
  std::vector<std::uint32_t> here;          // pairs that this rank computes, rising
  std::vector<const std::byte*> here_rows;  // [here]
  std::vector<std::int32_t> here_experts;   // [here]
  std::vector<std::byte*> here_outputs;     // [here]
  std::vector<std::uint8_t> covered;        // [rows * top_k] whether a rank has computed it
  std::vector<MissingExpert> late;          // own pairs that nobody computed or was asked for
  std::vector<RankSection> sections;

  RowTrouble trouble;
  /// When done: one a sequence of the plan; on the last stage's leading rank only.
  std::vector<SequenceResult> results;
  bool canary = false;  // a sequence of the plan is one
  /// Of the canary's rows, if the plan has one, else nothing: of each layer of the shard, what its
  /// attention and then its feed-forward part gave. A digest is the sum of its rows' XXH3-64, each
  /// keyed by the row's position, so that chunks add up to the same.
  std::vector<std::uint64_t> digests;

  kernels::PagedRows where() const { return {tables.data(), positions.data()}; }
  /// At a cut for experts: all of them, those that are elsewhere too; among ranks, this one's.
  ExpertPairs pairs() const {
    if (chosen.count > 0) return {layer, {}, {}, {}, {&chosen, 1}};
    return among_ranks ? ExpertPairs{layer, here_rows, here_experts, here_outputs}
                       : ExpertPairs{layer, pair_rows, expert_ids, pair_outputs};
  }
  /// Whether some of them are here.
  bool any_here() const { return among_ranks ? !here.empty() : missing.size() < expert_ids.size(); }
  /// The experts' input of a row, on the host, while on_missing() is told: wire type [width].
  const std::byte* wire_row(std::int32_t row) const {
    return wire_host + static_cast<std::size_t>(row) * wire_row_bytes;
  }
  /// Where ops find it.
  const std::byte* wire_row_there(std::int64_t row) const {
    return wire_room.data() + static_cast<std::size_t>(row) * wire_row_bytes;
  }
  /// Where ops have the output of a row's slot-th expert: wire type [width].
  std::byte* expert_output(std::int32_t row, std::int32_t slot) const {
    return pair_outputs[static_cast<std::size_t>(row * top_k + slot)];
  }
};

/// Of the canary's rows of hidden [rows, width]: Step::digests.
std::uint64_t canary_digest(const Step& step, const float* hidden);

/// Lists what its plan computes, and notes in the cache whose keys and values lie where.
void list_tokens(Step& step, KvCache& cache);

/// What a plan is checked against.
struct StepBounds {
  std::int32_t vocab = 0;
  std::int32_t positions = 0;  ///< a sequence may have
  std::int32_t num_blocks = 0;
  std::int32_t block_size = 1;
};

Status check_plan(const StepPlanBody& plan, const StepBounds& bounds);

}  // namespace troupe
