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
/// read from them.
class OutputHead {
 public:
  OutputHead(const ModelSpec& spec, const ShardWeights& weights, const KvCache& cache, int threads);

  /// Rows whose logits are in memory together: half a megabyte each for a large vocabulary.
  static constexpr std::size_t kLogitRows = 64;

  /// Overwrites step.results with one entry a sequence; one in trouble has nothing but that.
  void run(kernels::Stream& stream, Step& step);

 private:
  /// A row whose logits are needed.
  struct Wanted {
    std::size_t sequence = 0;
    std::size_t row = 0;    // of the sequence
    std::size_t input = 0;  // of the step
    bool bad = false;       // its logits are no numbers
  };
  void list_wanted(Step& step);
  void read_row(const StepPlanBody& plan, Wanted& wanted, const float* logits, Sampler& sampler,
                std::vector<SequenceResult>& results) const;

  const ModelSpec& spec_;
  const ShardWeights& weights_;
  const KvCache& cache_;
  std::vector<Sampler> samplers_;  // one a thread
  std::vector<Wanted> wanted_;
};

}  // namespace troupe
