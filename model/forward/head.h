#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/stream.h"
#include "model/forward/ruled_answers.h"
#include "model/forward/step.h"
#include "model/kv_cache.h"
#include "model/sampler.h"
#include "model/spec/model_spec.h"
#include "model/weights.h"

namespace troupe {

/// The end of the last stage: final norm, logits of the rows that someone asked for, and what is
/// read from them, some rows at a time.
///
///     begin ─► while more: compute ─► read ─► end
///
/// A tensor-parallel rank computes its part of the vocabulary, and the leading one reads.
class OutputHead {
 public:
  OutputHead(const ModelSpec& spec, const ShardWeights& weights, const KvCache& cache, int threads);

  /// Rows whose logits are in memory together: half a megabyte each for a large vocabulary.
  static constexpr std::size_t kLogitRows = 64;

  void use(std::shared_ptr<AnswerGrammars> grammars) { answers_.use(std::move(grammars)); }
  /// A plan's rules will be needed when its last layer is done.
  void expect(const StepPlanBody& plan) {
    if (sampler_) answers_.expect(plan);
  }

  /// Which rows they are. Overwrites step.results with one entry a sequence; one in trouble has
  /// nothing but that.
  void begin(kernels::Stream& stream, Step& step) const;
  bool more(const Step& step) const { return step.wanted_done < step.wanted.size(); }
  /// Decides how many come next: step.logit_rows.
  void choose_next(Step& step) const;
  /// Their logits, [logit_rows, tokens of the rank].
  void compute(kernels::Stream& stream, const Step& step, const kernels::Tensor& logits) const;
  /// What was asked of them, [logit_rows, vocab], which stay on the device.
  void read(kernels::Stream& stream, Step& step, const kernels::Tensor& logits);
  void end(Step& step) const;

 private:
  /// What was asked of a row, by the numbers of calls; -1: nothing.
  struct Calls {
    std::int64_t target = -1, sampled = -1;
    RuledAnswer* ruled = nullptr;  ///< whose mask the token is drawn with
    bool waits = false;            ///< it cannot be drawn yet
    std::string trouble = {};      ///< why none is drawn
  };
  Calls ask(const StepPlanBody& plan, const WantedRow& wanted, std::int64_t row);
  void ask_for_token(const StepSequence& sequence, std::int64_t row, Calls& calls);
  void fill_masks(kernels::Stream& stream);
  /// Behind the final norm, of rows of the step: [rows, hidden]. In the caller's scope.
  kernels::Tensor normed(kernels::Stream& stream, const Step& step,
                         std::span<const WantedRow> rows) const;
  /// The hidden states that the plan asks for, kLogitRows at a time.
  void read_hidden(kernels::Stream& stream, Step& step) const;

  const ModelSpec& spec_;
  const ShardWeights& weights_;
  const KvCache& cache_;
  std::optional<Sampler> sampler_;  // of the leading rank
  RuledAnswers answers_;            // that its rules speak of
  std::vector<Calls> calls_;        // of the rows that are read together
};

}  // namespace troupe
