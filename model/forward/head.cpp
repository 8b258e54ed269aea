#include "model/forward/head.h"

#include <algorithm>

#include "kernels/copy.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"

namespace troupe {

OutputHead::OutputHead(const ModelSpec& spec, const ShardWeights& weights, const KvCache& cache,
                       int threads)
    : spec_(spec), weights_(weights), cache_(cache) {
  if (spec.rank.rank == 0) sampler_.emplace(spec.vocab, threads);
}

void OutputHead::begin(kernels::Stream& stream, Step& step) const {
  const StepPlanBody& plan = *step.plan;
  step.trouble.read(stream);
  const RowTrouble& trouble = step.trouble;
  std::vector<SequenceResult>& results = step.results;
  step.wanted.clear();
  step.wanted_done = 0;
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
      if ((last && sequence.sample) || target) step.wanted.push_back({s, r, input});
    }
  }
}

void OutputHead::choose_next(Step& step) const {
  step.logit_rows =
      static_cast<std::int64_t>(std::min(kLogitRows, step.wanted.size() - step.wanted_done));
}

void OutputHead::compute(kernels::Stream& stream, const Step& step,
                         const kernels::Tensor& logits) const {
  kernels::Stream::Scope scope(stream);
  const std::int64_t width = spec_.hidden;
  const kernels::Tensor x = stream.alloc(step.logit_rows, width);  // [rows, hidden]
  const WantedRow* wanted = step.wanted.data() + step.wanted_done;
  for (std::int64_t i = 0, end = 0; i < step.logit_rows; i = end) {  // rows that lie together
    const auto first = static_cast<std::int64_t>(wanted[i].input);
    for (end = i + 1; end < step.logit_rows;) {
      if (static_cast<std::int64_t>(wanted[end].input) != first + end - i) break;
      ++end;
    }
    kernels::copy(stream, step.hidden.part(first, end - i), x.part(i, end - i));
  }
  kernels::rms_norm(stream, x, weights_.final_norm, spec_.norm_eps, x);
  kernels::linear(stream, weights_.head, kernels::prepare(stream, x, weights_.head), logits);
}

void OutputHead::read(kernels::Stream& stream, Step& step, const kernels::Tensor& logits) {
  WantedRow* const wanted = step.wanted.data() + step.wanted_done;
  sampler_->clear();
  calls_.clear();
  for (std::int64_t i = 0; i < step.logit_rows; ++i)
    calls_.push_back(ask(*step.plan, wanted[i], i));
  sampler_->run(stream, logits);
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const auto [target, sampled] = calls_[i];
    wanted[i].bad = !sampler_->finite(static_cast<std::size_t>(std::max(target, sampled)));
    if (wanted[i].bad) continue;
    auto& result = step.results[wanted[i].sequence];
    if (target >= 0)
      result.prompt[wanted[i].row] = sampler_->output(static_cast<std::size_t>(target));
    if (sampled >= 0) result.sampled = sampler_->output(static_cast<std::size_t>(sampled));
  }
}

void OutputHead::end(Step& step) const {
  for (const WantedRow& wanted : step.wanted) {
    auto& result = step.results[wanted.sequence];
    if (wanted.bad) result = {result.id, {}, {}, no_number_text("its logits")};
  }
}

OutputHead::Calls OutputHead::ask(const StepPlanBody& plan, const WantedRow& wanted,
                                  std::int64_t row) {
  const auto& sequence = plan.sequences[wanted.sequence];
  Calls calls;
  if (sequence.prompt_logprobs && sequence.targets[wanted.row] >= 0)
    calls.target = static_cast<std::int64_t>(
        sampler_->logprobs(row, sequence.targets[wanted.row], sequence.sampling.top_logprobs));
  if (!sequence.sample || wanted.row + 1 != sequence.tokens.size()) return calls;
  TokenHistory history;
  history.pool = cache_.tokens();
  history.block_table = sequence.block_table;
  history.block_size = cache_.block_size();
  history.length = sequence.first_position + static_cast<std::int32_t>(sequence.tokens.size());
  history.prompt_length = sequence.prompt_length;
  calls.sampled = static_cast<std::int64_t>(sampler_->sample(row, sequence.sampling, history));
  return calls;
}

}  // namespace troupe
