#include "kernels/sample.h"

#include <algorithm>

#include "kernels/bad_rows.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/sample_row.h"
#include "kernels/softmax_logprob.h"

namespace troupe::kernels {
namespace {

/// A call on a row, by one thread.
class RowSampler {
 public:
  /// Takes what it works with of the scratch: 16 bytes a token.
  RowSampler(Scratch& scratch, std::size_t vocab)
      : vocab_(static_cast<TokenId>(vocab)),
        scores_(scratch.take<float>(vocab)),
        weights_(scratch.take<double>(vocab)),
        order_(scratch.take<TokenId>(vocab)) {}

  TokenId draw(const SampleCall& call, const float* logits, const SampleLists& lists) {
    for (TokenId i = 0; i < vocab_; ++i) scores_[i] = sampling::without_nan(logits[i]);
    const AdjustedToken* const adjusted = lists.adjusted.data() + call.first_adjusted;
    for (std::int32_t i = 0; i < call.adjusted; ++i) {
      float& score = scores_[adjusted[i].token];
      score = sampling::adjusted(call, score, adjusted[i]);
    }
    if (call.mask >= 0) {
      const std::uint32_t* const mask = lists.masks.data() + call.mask * mask_words(vocab_);
      for (TokenId i = 0; i < vocab_; ++i) scores_[i] = sampling::masked(scores_[i], mask, i);
    }
    const TokenId best = most_likely();
    if (sampling::greedy(call) || !sampling::leaves_choice(scores_[best])) return best;
    return draw_below(call, best);
  }

 private:
  TokenId most_likely() const {
    TokenId best = 0;
    for (TokenId id = 1; id < vocab_; ++id)
      if (scores_[id] > scores_[best]) best = id;
    return best;
  }

  TokenId draw_below(const SampleCall& call, TokenId best) {
    const float highest = scores_[best];
    for (TokenId i = 0; i < vocab_; ++i) weights_[i] = sampling::weight(call, scores_[i], highest);
    double total = 0;
    for (TokenId i = 0; i < vocab_; ++i) total += weights_[i];
    if (!(total > 0)) return best;  // min_p above 1 rules out everything
    if (!sampling::keeps_all(call, vocab_)) return draw_sorted(call, total);
    const double goal = call.uniform * total;
    double sum = 0;
    for (TokenId id = 0; id < vocab_; ++id) {
      sum += weights_[id];
      if (sum > goal) return id;
    }
    return best;
  }

  /// The candidates by rank, only as many sorted as top_k and top_p can keep.
  TokenId draw_sorted(const SampleCall& call, double total) {
    std::size_t count = 0, sorted = 0;
    for (TokenId id = 0; id < vocab_; ++id)
      if (weights_[id] > 0) order_[count++] = id;
    TokenId* const all_end = order_ + count;
    const auto rank = [scores = scores_](TokenId a, TokenId b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    };
    const auto weight = [&](std::size_t i) { return weights_[order_[i]]; };
    const auto sort_up_to = [&](std::size_t end) {
      TokenId *const begin = order_ + sorted, *const middle = order_ + end;
      if (middle != all_end) std::nth_element(begin, middle, all_end, rank);
      std::sort(begin, middle, rank);
      sorted = end;
    };
    if (call.top_k > 0 && static_cast<std::size_t>(call.top_k) < count) {
      count = static_cast<std::size_t>(call.top_k);
      sort_up_to(count);
      total = 0;
      for (std::size_t i = 0; i < count; ++i) total += weight(i);
    }
    // top_p keeps the shortest run of the best whose probabilities reach it; never less than one.
    double kept = total;
    if (call.top_p < 1.0f) {
      const double goal = static_cast<double>(call.top_p) * total;
      std::size_t i = 0;
      for (kept = 0; i < count && (i == 0 || kept < goal); ++i) {
        if (i == sorted) sort_up_to(std::min(count, std::max<std::size_t>(64, sorted * 8)));
        kept += weight(i);
      }
      count = i;
    }
    const double goal = call.uniform * kept;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += weight(i);
      if (sum > goal) return order_[i];
    }
    return order_[count - 1];
  }

  const TokenId vocab_;
  float* const scores_;    // [vocab], after penalties and masks
  double* const weights_;  // [vocab]
  TokenId* const order_;   // [vocab], candidates
};

/// The `count` most likely of a row.
void find_top(const float* logits, TokenId vocab, std::size_t count, const LogSoftmax& softmax,
              TokenLogprob* top) {
  std::size_t found = 0;
  for (TokenId id = 0; id < vocab; ++id) {
    const float logit = sampling::without_nan(logits[id]);
    if (found == count && !(logit > top[count - 1].logprob)) continue;
    std::size_t at = found < count ? found++ : count - 1;
    for (; at > 0 && logit > top[at - 1].logprob; --at) top[at] = top[at - 1];
    top[at] = {id, logit};
  }
  for (std::size_t i = 0; i < found; ++i)
    top[i].logprob = sampling::shown_logprob(softmax.logprob(top[i].logprob));
}

}  // namespace

void cpu::sample(Stream& stream, const Tensor& logits, std::span<const SampleCall> calls,
                 const SampleLists& lists, const SampleResults& results) {
  const auto vocab = static_cast<std::size_t>(logits.dim);
  Scratch& scratch = stream.scratch();
  Scratch::Scope scope(scratch);
  const bool draws = std::any_of(calls.begin(), calls.end(), [](auto& c) { return c.draws(); });
  const auto threads =
      static_cast<std::size_t>(stream.pool() == nullptr ? 1 : stream.pool()->threads());
  auto* const samplers = scratch.take<RowSampler>(threads);
  for (std::size_t t = 0; t < threads && draws; ++t) new (samplers + t) RowSampler(scratch, vocab);
  const auto answer = [&](int thread, std::size_t i) {
    const SampleCall& call = calls[i];
    const auto* const row = head_of<const float>(logits, call.row);
    SampleResult& result = results.of[i];
    result = {call.target, 0.0f, all_finite(row, vocab) ? 1 : 0};
    if (call.draws()) result.token = samplers[thread].draw(call, row, lists);
    if (call.top < 0) return;
    const LogSoftmax softmax = log_softmax(row, vocab);
    result.logprob = sampling::shown_logprob(softmax.logprob(row[result.token]));
    if (call.top > 0)
      find_top(row, static_cast<TokenId>(vocab),
               std::min(static_cast<std::size_t>(call.top), vocab), softmax,
               results.top + static_cast<std::int64_t>(i) * results.top_columns);
  };
  if (stream.pool() != nullptr) return stream.pool()->parallel_for(calls.size(), answer);
  for (std::size_t i = 0; i < calls.size(); ++i) answer(0, i);
}

}  // namespace troupe::kernels
