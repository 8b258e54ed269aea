#include "model/output_head.h"

#include <algorithm>
#include <cstring>

#include "kernels/linear.h"
#include "kernels/rms_norm.h"

namespace troupe {
namespace {

/// Rows whose logits are in memory together: half a megabyte each for a large vocabulary.
constexpr std::size_t kLogitRows = 64;

}  // namespace

OutputHead::OutputHead(const ModelConfig& config, const ShardWeights& weights,
                       const KvCache& cache, int threads)
    : config_(config), weights_(weights), cache_(cache) {
  for (int i = 0; i < threads; ++i) samplers_.emplace_back(config.vocab_size);
}

void OutputHead::run(const kernels::Context& ctx, const StepPlanBody& plan, const float* hidden,
                     const RowTrouble& trouble, std::vector<SequenceResult>& results) {
  list_wanted(plan, trouble, results);
  const auto width = static_cast<std::size_t>(config_.hidden_size);
  const auto vocab = static_cast<std::size_t>(config_.vocab_size);
  for (std::size_t begin = 0; begin < wanted_.size(); begin += kLogitRows) {
    const std::size_t rows = std::min(kLogitRows, wanted_.size() - begin);
    kernels::Scratch::Scope scope(*ctx.scratch);
    float* x = ctx.scratch->take<float>(rows * width);       // [rows, hidden]
    float* logits = ctx.scratch->take<float>(rows * vocab);  // [rows, vocab]
    for (std::size_t i = 0; i < rows; ++i)
      std::memcpy(x + i * width, hidden + wanted_[begin + i].input * width,
                  width * sizeof(float));
    const auto normed = kernels::make_rows(x, rows, width);
    kernels::rms_norm(ctx, normed, weights_.final_norm.data(),
                      static_cast<float>(config_.rms_norm_eps), normed);
    kernels::linear(ctx, weights_.head, normed, kernels::make_rows(logits, rows, vocab));
    ctx.pool->parallel_for(rows, [&](int thread, std::size_t i) {
      read_row(plan, wanted_[begin + i], logits + i * vocab,
               samplers_[static_cast<std::size_t>(thread)], results);
    });
  }
  for (const Wanted& wanted : wanted_) {
    auto& result = results[wanted.sequence];
    if (wanted.bad) result = {result.id, {}, {}, no_number_text("its logits")};
  }
}

void OutputHead::list_wanted(const StepPlanBody& plan, const RowTrouble& trouble,
                             std::vector<SequenceResult>& results) {
  wanted_.clear();
  results.clear();
  results.resize(plan.sequences.size());
  std::size_t input = 0;
  for (std::size_t s = 0; s < plan.sequences.size(); ++s) {
    const auto& sequence = plan.sequences[s];
    results[s].id = sequence.id;
    if (trouble.any(input, sequence.tokens.size())) {
      results[s].trouble = trouble.text(input, sequence.tokens.size());
      input += sequence.tokens.size();
      continue;
    }
    if (sequence.prompt_logprobs) results[s].prompt.resize(sequence.tokens.size());
    for (std::size_t r = 0; r < sequence.tokens.size(); ++r, ++input) {
      const bool last = r + 1 == sequence.tokens.size();
      const bool target = sequence.prompt_logprobs && sequence.targets[r] >= 0;
      if ((last && sequence.sample) || target) wanted_.push_back({s, r, input});
    }
  }
}

void OutputHead::read_row(const StepPlanBody& plan, Wanted& wanted, const float* logits,
                          Sampler& sampler, std::vector<SequenceResult>& results) const {
  wanted.bad = !all_finite(logits, static_cast<std::size_t>(config_.vocab_size));
  if (wanted.bad) return;
  const auto& sequence = plan.sequences[wanted.sequence];
  auto& result = results[wanted.sequence];
  if (sequence.prompt_logprobs && sequence.targets[wanted.row] >= 0)
    result.prompt[wanted.row] = sampler.logprobs(logits, sequence.targets[wanted.row],
                                                 sequence.sampling.top_logprobs);
  if (!sequence.sample || wanted.row + 1 != sequence.tokens.size()) return;
  TokenHistory history;
  history.pool = cache_.tokens();
  history.block_table = sequence.block_table;
  history.block_size = cache_.block_size();
  history.length = sequence.first_position + static_cast<std::int32_t>(sequence.tokens.size());
  history.prompt_length = sequence.prompt_length;
  result.sampled = sampler.sample(logits, sequence.sampling, history);
}

}  // namespace troupe
