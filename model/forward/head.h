#pragma once

#include <cstdint>
#include <vector>

#include "kernels/stream.h"
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

  /// Which rows they are. Overwrites step.results with one entry a sequence; one in trouble has
  /// nothing but that.
  void begin(kernels::Stream& stream, Step& step) const;
  bool more(const Step& step) const { return step.wanted_done < step.wanted.size(); }
  /// Decides how many come next: step.logit_rows.
  void choose_next(Step& step) const;
  /// Their logits, [logit_rows, tokens of the rank].
  void compute(kernels::Stream& stream, const Step& step, const kernels::Tensor& logits) const;
  /// What was asked of them; [logit_rows, vocab].
  void read(ThreadPool& pool, Step& step, const float* logits);
  void end(Step& step) const;

 private:
  void read_row(const StepPlanBody& plan, WantedRow& wanted, const float* logits, Sampler& sampler,
                std::vector<SequenceResult>& results) const;

  const ModelSpec& spec_;
  const ShardWeights& weights_;
  const KvCache& cache_;
  std::vector<Sampler> samplers_;  // one a thread, of the leading rank
};

}  // namespace troupe
