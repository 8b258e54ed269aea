#include "model/forward/head.h"

#include <algorithm>
#include <cmath>

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
  if (sampler_) read_hidden(stream, step);
}

void OutputHead::choose_next(Step& step) const {
  step.logit_rows =
      static_cast<std::int64_t>(std::min(kLogitRows, step.wanted.size() - step.wanted_done));
}

void OutputHead::compute(kernels::Stream& stream, const Step& step,
                         const kernels::Tensor& logits) const {
  kernels::Stream::Scope scope(stream);
  const std::span<const WantedRow> wanted(step.wanted);
  const kernels::Tensor x = normed(
      stream, step, wanted.subspan(step.wanted_done, static_cast<std::size_t>(step.logit_rows)));
  kernels::linear(stream, weights_.head, kernels::prepare(stream, x, weights_.head), logits);
}

void OutputHead::read(kernels::Stream& stream, Step& step, const kernels::Tensor& logits) {
  WantedRow* const wanted = step.wanted.data() + step.wanted_done;
  sampler_->clear();
  calls_.clear();
  answers_.begin();
  for (std::int64_t i = 0; i < step.logit_rows; ++i)
    calls_.push_back(ask(*step.plan, wanted[i], i));
  fill_masks(stream);
  sampler_->run(stream, logits);
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const auto& [target, sampled, ruled, waits, trouble] = calls_[i];
    auto& result = step.results[wanted[i].sequence];
    if (!trouble.empty()) result.trouble = trouble;
    result.unanswerable |= !trouble.empty();
    result.waits |= waits;
    const std::int64_t any = std::max(target, sampled);
    if (any < 0) continue;
    wanted[i].bad = !sampler_->finite(static_cast<std::size_t>(any));
    if (wanted[i].bad || !trouble.empty()) continue;
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
  if (sequence.sample && wanted.row + 1 == sequence.tokens.size())
    ask_for_token(sequence, row, calls);
  return calls;
}

void OutputHead::ask_for_token(const StepSequence& sequence, std::int64_t row, Calls& calls) {
  TokenHistory history;
  history.pool = cache_.tokens();
  history.block_table = sequence.block_table;
  history.block_size = cache_.block_size();
  history.length = sequence.first_position + static_cast<std::int32_t>(sequence.tokens.size());
  history.prompt_length = sequence.prompt_length;
  if (sequence.sampling.rules) {
    const auto ruled = answers_.find(sequence, history);
    if (!ruled.ok()) calls.trouble = ruled.error().message;
    calls.waits = ruled.ok() && *ruled == nullptr;
    if (!ruled.ok() || calls.waits) return;
    calls.ruled = *ruled;
  }
  const std::size_t call = sampler_->sample(row, sequence.sampling, history);
  calls.sampled = static_cast<std::int64_t>(call);
  if (calls.ruled != nullptr && calls.ruled->limits())
    sampler_->use_mask(call);
  else
    calls.ruled = nullptr;
}

/// Each on a thread: no two are of one sequence.
void OutputHead::fill_masks(kernels::Stream& stream) {
  const auto fill = [this](int, std::size_t i) {
    Calls& calls = calls_[i];
    if (calls.ruled == nullptr) return;
    const auto mask = sampler_->mask(static_cast<std::size_t>(calls.sampled));
    if (calls.ruled->allowed(mask, spec_.vocab)) return;
    calls.trouble = calls.ruled->trouble();
    mask[0] = 1;  // one must be set; what is drawn is not looked at
  };
  if (std::ranges::none_of(calls_, [](const Calls& c) { return c.ruled != nullptr; })) return;
  if (stream.pool() != nullptr) return stream.pool()->parallel_for(calls_.size(), fill);
  for (std::size_t i = 0; i < calls_.size(); ++i) fill(0, i);
}

kernels::Tensor OutputHead::normed(kernels::Stream& stream, const Step& step,
                                   std::span<const WantedRow> rows) const {
  const auto count = static_cast<std::int64_t>(rows.size());
  const kernels::Tensor x = stream.alloc(count, spec_.hidden);
  for (std::size_t i = 0, end = 0; i < rows.size(); i = end) {  // rows that lie together
    for (end = i + 1; end < rows.size() && rows[end].input == rows[i].input + end - i;) ++end;
    const auto together = static_cast<std::int64_t>(end - i);
    kernels::copy(stream, step.hidden.part(static_cast<std::int64_t>(rows[i].input), together),
                  x.part(static_cast<std::int64_t>(i), together));
  }
  kernels::rms_norm(stream, x, weights_.final_norm, spec_.norm_eps, x);
  return x;
}

void OutputHead::read_hidden(kernels::Stream& stream, Step& step) const {
  const auto& sequences = step.plan->sequences;
  std::vector<WantedRow> rows;
  for (std::size_t s = 0, input = 0; s < sequences.size(); ++s) {
    input += sequences[s].tokens.size();
    if (!step.results[s].trouble.empty()) continue;
    const auto count = static_cast<std::size_t>(sequences[s].hidden_rows);
    for (std::size_t back = count; back > 0; --back) rows.push_back({s, 0, input - back});
  }
  const auto width = static_cast<std::size_t>(spec_.hidden);
  for (std::size_t done = 0; done < rows.size(); done += kLogitRows) {
    kernels::Stream::Scope scope(stream);
    const auto some = std::span(rows).subspan(done, std::min(kLogitRows, rows.size() - done));
    const float* x = stream.read<float>(normed(stream, step, some));
    for (const WantedRow& row : some) {
      std::vector<float>& hidden = step.results[row.sequence].hidden;
      hidden.insert(hidden.end(), x, x + width);
      x += width;
    }
  }
  for (SequenceResult& result : step.results)
    if (!std::ranges::all_of(result.hidden, [](float v) { return std::isfinite(v); }))
      result = {result.id, {}, {}, no_number_text("its hidden states")};
}

}  // namespace troupe
