#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/expert_forward.h"
#include "model/expert_set.h"
#include "model/kv_cache.h"
#include "model/weights.h"
#include "runtime/numerics.h"
#include "runtime/result.h"
#include "runtime/step.h"
#include "runtime/thread_pool.h"

namespace troupe {

/// What a step waits for when advance() returns.
enum class Progress : std::uint8_t {
  kNeedExperts,  ///< fill every expert_output(), then advance() again
  kDone,         ///< hidden() goes to the next stage, or results() to the Replica
};

/// Everything that a step in flight holds on one shard. Make one per step that may be in flight,
/// and use it again: once warm, a step allocates nothing but its results.
///
///     begin ──► advance ──► kNeedExperts ──► run_shared, run_local_experts, remote answers ─┐
///                  ▲  └───► kDone                                                           │
///                  └────────────────────────────────────────────────────────────────────────┘
class StepRun {
 public:
  StepRun();
  ~StepRun();
  StepRun(StepRun&&) noexcept;
  StepRun& operator=(StepRun&&) noexcept;

  std::int32_t rows() const;   ///< of all sequences, in the plan's order
  std::int32_t top_k() const;

  // While experts are waited for:
  std::int32_t layer() const;                       ///< absolute
  const std::byte* normed(std::int32_t row) const;  ///< wire type [hidden]: the experts' input
  std::size_t wire_row_bytes() const;               ///< of normed() and expert_output()
  /// [rows, top_k], each row's experts in rising order.
  std::span<const std::int32_t> expert_ids() const;
  /// [rows, top_k], what each expert's output is multiplied with.
  std::span<const float> expert_weights() const;
  /// Where the output of a row's slot-th expert belongs: wire type [hidden].
  std::byte* expert_output(std::int32_t row, std::int32_t slot);

  // When done:
  const float* hidden() const;  ///< [rows, hidden] float32; not on the last stage
  /// One a sequence of the plan; on the last stage only.
  const std::vector<SequenceResult>& results() const;
  std::vector<SequenceResult>& results();
  /// Of the canary's rows, if the plan has one, else nothing: of each layer of the shard, what its
  /// attention and then its feed-forward part gave. A digest is the sum of its rows' XXH3-64, each
  /// keyed by the row's position, so that chunks add up to the same.
  const std::vector<std::uint64_t>& digests() const;

 private:
  friend class ShardForward;
  struct State;
  std::unique_ptr<State> state_;
};

/// The forward pass of a shard's layers, cut at every point where something is summed over devices.
/// Used from the Device's compute thread only; several steps may be between their cuts.
class ShardForward {
 public:
  ShardForward(const ModelConfig& config, Numerics numerics,
               std::shared_ptr<const ShardWeights> weights, KvCache& cache, ThreadPool& threads);
  ~ShardForward();

  /// Takes a plan, checking it against the model and the cache. `hidden` is what the stage before
  /// sent, [rows, hidden] float32; null on the first stage.
  Status begin(StepRun& run, const StepPlanBody& plan, const float* hidden);

  /// Computes until the next cut.
  Progress advance(StepRun& run);

  /// The shared expert of the layer, while the routed ones compute elsewhere; once a cut, before
  /// advance() (which does it if nobody has).
  void run_shared(StepRun& run);

  /// A (row, slot) whose expert is not here.
  struct Missing {
    std::int32_t row = 0;
    std::int32_t slot = 0;
    std::int32_t expert = 0;
  };
  /// Runs the pairs whose experts are in the set, in one grouped pass, straight into
  /// expert_output(). `missing` is cleared and gets the others, by row and slot.
  void run_local_experts(StepRun& run, const ExpertSet& experts, std::vector<Missing>& missing);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
