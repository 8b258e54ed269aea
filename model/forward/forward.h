#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/stream.h"
#include "model/expert_set.h"
#include "model/forward/expert_ranks.h"
#include "model/forward/step.h"
#include "model/kv_cache.h"
#include "model/spec/model_spec.h"
#include "model/weights.h"
#include "runtime/result.h"

namespace troupe {

class AnswerGrammars;

/// What a step waits for when advance() returns.
enum class Cut : std::uint8_t {
  kExperts,  ///< have all Step::pairs() computed, here and elsewhere, then advance() again
  kAnswers,  ///< have the outputs of Step::missing, which other devices compute, then advance()
  kRanks,    ///< have Step::exchange carried out among the tensor-parallel ranks, then advance()
  kYield,    ///< somebody goes first: advance() again once they have had the device
  kCorrupt,  ///< what another rank sent does not fit; the step is over
  kDone,     ///< Step::hidden goes to the next stage, or Step::results to the Replica
};

/// Told of what advance() finds, on its thread.
class ForwardListener {
 public:
  virtual ~ForwardListener() = default;
  /// A gate has chosen [rows, top_k] experts: told at once, or when the step is done where the
  /// device kept the choice for itself.
  virtual void on_routed(std::int32_t layer, std::span<const std::int32_t> experts) = 0;
  /// So many experts' weights were read for what the device chose, since the step began.
  virtual void on_experts_read(std::uint64_t experts) = 0;
  /// Some are elsewhere (Step::missing). Asked before anything else computes, so that the question
  /// travels meanwhile.
  virtual void on_missing(const Step& step) = 0;
  /// Another tensor-parallel rank has computed all that was asked for at this cut: no answer is
  /// waited for.
  virtual void on_found(const Step& step) = 0;
  /// Asked between layers, and between rows' logits: whether the step is to leave the device to
  /// somebody else for a moment.
  virtual bool yields() { return false; }
};

/// The forward pass of a shard's layers, cut at every point where something is summed over devices.
/// Used from the Device's compute thread only; several steps may be between their cuts.
///
///     begin ──► advance ──► kExperts ──► outputs of the chosen experts ───┐
///                  ▲  ├───► kRanks ────► parts of the other ranks ────────┤
///                  │  ├───► kYield ────► a job of somebody else's ─────────┤
///                  │  ├───► kAnswers ──► experts beyond the ranks ─────────┤
///                  │  └───► kDone                                         │
///                  └──────────────────────────────────────────────────────┘
///
/// A tensor-parallel rank computes its part of the model that split_model() makes (`spec`). At
/// kExperts its device computes for the rows of all ranks; kAnswers is what no rank has.
class Forward {
 public:
  /// `spec` and `cache` must outlive it.
  Forward(const ModelSpec& spec, std::shared_ptr<const ShardWeights> weights, KvCache& cache,
          const kernels::Stream::Options& stream);
  ~Forward();

  /// Which rank computes which experts from now on; null: none for another one.
  void use(std::shared_ptr<const ExpertRanks> ranks);

  /// What rules for answers are followed with, on the last stage; without, a sequence that has a
  /// grammar is in trouble.
  void use(std::shared_ptr<AnswerGrammars> grammars);

  /// Whether all tensor-parallel ranks are in this process, and read each other's numbers in the
  /// memory of the device that computed them.
  void stay_on_devices(bool stay);

  /// Takes a plan, checking it against the model and the cache. `hidden` is what the stage before
  /// sent, exactly [rows, hidden] float32; empty on the first stage. `plan` must stay until the
  /// step is done.
  Status begin(Step& step, const StepPlanBody& plan, const Payload& hidden = {});

  /// At a cut: the output of an expert that was asked for elsewhere.
  void answer(Step& step, const MissingExpert& of, const Payload& output);
  /// When it is done: the residual stream, [rows, width] float32, for the next stage.
  Payload hidden_of(const Step& step);

  /// Computes until the next cut. `experts` are those at hand.
  Cut advance(Step& step, const ExpertSet& experts, ForwardListener& listener);

  /// Held for temporaries, those of the experts at hand not among them.
  std::size_t scratch_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
