#pragma once

#include <cstdint>
#include <span>

#include "kernels/stream.h"
#include "runtime/sampling_params.h"

namespace troupe::kernels {

/// Log-probabilities are cut off here, so that a token that cannot be has a number too.
inline constexpr float kLogprobMin = -9999.0f;

/// What is asked of a row of logits: the next token, or the log-probability of a given one.
struct SampleCall {
  std::int64_t row = 0;
  TokenId target = -1;    ///< not negative: nothing is drawn
  std::int32_t top = -1;  ///< -1: no log-probability, 0: the token's only, k: and the k most likely
  float temperature = 1;  ///< these as in SamplingParams
  float top_p = 1;
  float min_p = 0;
  std::int32_t top_k = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::int32_t first_adjusted = 0, adjusted = 0;  ///< of SampleLists::adjusted
  std::int32_t mask = -1;  ///< which of SampleLists::masks; -1: every token may be drawn
  double uniform = 0;      ///< in [0, 1): which one is drawn

  constexpr bool draws() const { return target < 0; }
};

/// A token whose score is not its logit: one of the prompt or the output so far, one with a bias;
/// once for each call.
struct AdjustedToken {
  TokenId token = 0;
  std::int32_t count = 0;  ///< in the output so far; -1: not in the prompt either, no penalties
  float bias = 0;          ///< added to the logit, before penalties
};

/// What all calls together have beside their numbers.
struct SampleLists {
  std::span<const AdjustedToken> adjusted = {};
  /// [masks, mask_words(vocab)]: bit t % 32 of word t / 32 is set if token t may be drawn. One at
  /// least is.
  std::span<const std::uint32_t> masks = {};
};

constexpr std::int64_t mask_words(std::int64_t vocab) { return (vocab + 31) / 32; }

struct SampleResult {
  TokenId token = 0;
  float logprob = 0;        ///< 0 if nobody asked
  std::int32_t finite = 0;  ///< whether all logits of the row were
};

/// Where results go, in memory that ops reach.
struct SampleResults {
  SampleResult* of = nullptr;   ///< [calls]
  TokenLogprob* top = nullptr;  ///< [calls, top_columns], of each call the first `top`
  std::int64_t top_columns = 0;
};

/// Answers calls on logits [rows, vocab] float32: 12 bytes a call and 8 for each token that is
/// among the most likely leave the device, whatever was asked; a row of logits never does.
///
/// Order: bias, penalties, masks, temperature, min_p, top_k, top_p, as vLLM has it (scores and
/// weights: kernels/sample_row.h). Weights are added up in float64 by rising id, those that top_k
/// or top_p choose from by rank: falling score, of equal ones the lower id. The token drawn is the
/// first at which the running sum is above `uniform` times that of all. A NaN logit counts as
/// minus infinity. Log-probabilities are those of the logits as they came (softmax_logprob.h).
///
/// Bytes: a row once for each of some ten passes; bound by the order of the sums.
void sample(Stream& stream, const Tensor& logits, std::span<const SampleCall> calls,
            const SampleLists& lists, const SampleResults& results);

}  // namespace troupe::kernels
