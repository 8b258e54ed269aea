#pragma once

#include <cstdint>
#include <vector>

#include "kernels/context.h"
#include "model/kv_cache.h"
#include "model/layer_weights.h"
#include "model/row_trouble.h"
#include "model/sampler.h"
#include "runtime/step.h"

namespace troupe {

/// The end of the last stage: final norm, logits of the rows that someone asked for, and what is
/// read from them.
class OutputHead {
 public:
  OutputHead(const ModelConfig& config, const ShardWeights& weights, const KvCache& cache,
             int threads);

  /// `hidden` [rows, hidden] in the plan's order, `trouble` of the same rows. Overwrites `results`
  /// with one entry a sequence; one in trouble has nothing but that.
  void run(const kernels::Context& ctx, const StepPlanBody& plan, const float* hidden,
           const RowTrouble& trouble, std::vector<SequenceResult>& results);

 private:
  /// A row whose logits are needed.
  struct Wanted {
    std::size_t sequence = 0;
    std::size_t row = 0;    // of the sequence
    std::size_t input = 0;  // of the step
    bool bad = false;       // its logits are no numbers
  };
  void list_wanted(const StepPlanBody& plan, const RowTrouble& trouble,
                   std::vector<SequenceResult>& results);
  void read_row(const StepPlanBody& plan, Wanted& wanted, const float* logits, Sampler& sampler,
                std::vector<SequenceResult>& results) const;

  const ModelConfig& config_;
  const ShardWeights& weights_;
  const KvCache& cache_;
  std::vector<Sampler> samplers_;  // one a thread
  std::vector<Wanted> wanted_;
};

}  // namespace troupe
