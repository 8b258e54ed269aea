#include "model/forward/head.h"

#include <algorithm>

#include "kernels/copy.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"

namespace troupe {

OutputHead::OutputHead(const ModelSpec& spec, const ShardWeights& weights, const KvCache& cache,
                       int threads)
    : spec_(spec), weights_(weights), cache_(cache) {
  for (int i = 0; i < threads && spec.rank.rank == 0; ++i) samplers_.emplace_back(spec.vocab);
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

void OutputHead::read(ThreadPool& pool, Step& step, const float* logits) {
  const auto rows = static_cast<std::size_t>(step.logit_rows);
  pool.parallel_for(rows, [&](int thread, std::size_t i) {
    read_row(*step.plan, step.wanted[step.wanted_done + i],
             logits + static_cast<std::int64_t>(i) * spec_.vocab,
             samplers_[static_cast<std::size_t>(thread)], step.results);
  });
}

void OutputHead::end(Step& step) const {
  for (const WantedRow& wanted : step.wanted) {
    auto& result = step.results[wanted.sequence];
    if (wanted.bad) result = {result.id, {}, {}, no_number_text("its logits")};
  }
}

void OutputHead::read_row(const StepPlanBody& plan, WantedRow& wanted, const float* logits,
                          Sampler& sampler, std::vector<SequenceResult>& results) const {
  wanted.bad = !kernels::all_finite(logits, static_cast<std::size_t>(spec_.vocab));
  if (wanted.bad) return;
  const auto& sequence = plan.sequences[wanted.sequence];
  auto& result = results[wanted.sequence];
  if (sequence.prompt_logprobs && sequence.targets[wanted.row] >= 0)
    result.prompt[wanted.row] =
        sampler.logprobs(logits, sequence.targets[wanted.row], sequence.sampling.top_logprobs);
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
