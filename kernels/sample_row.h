#pragma once

#include "kernels/sample.h"
#include "kernels/scalar_math.h"

/// What becomes of a logit when a token is chosen: what CPUs and GPUs compute alike.
namespace troupe::kernels::sampling {

inline constexpr float kLowest = -__builtin_inff();
inline constexpr float kLowestFinite = -3.40282346638528859812e+38f;

/// Below this, sampling is greedy: dividing by it would tell nothing apart.
inline constexpr float kTemperatureMin = 1e-5f;

TROUPE_INLINE float without_nan(float x) { return x == x ? x : kLowest; }

TROUPE_INLINE bool greedy(const SampleCall& call) { return !(call.temperature >= kTemperatureMin); }

/// The score of a token with its bias and penalties.
TROUPE_INLINE float adjusted(const SampleCall& call, float score, const AdjustedToken& token) {
  score = without_nan(score + token.bias);
  const std::int32_t count = token.count;
  if (count < 0) return score;
  score = score > 0 ? score / call.repetition_penalty : score * call.repetition_penalty;
  score -= call.frequency_penalty * static_cast<float>(count);
  if (count > 0) score -= call.presence_penalty;
  return without_nan(score);
}

/// Whatever its score, a token that a mask leaves comes before those that it does not.
TROUPE_INLINE float masked(float score, const std::uint32_t* mask, std::int64_t id) {
  if ((mask[id / 32] >> (id % 32) & 1u) == 0) return kLowest;
  return score > kLowestFinite ? score : kLowestFinite;
}

/// One infinite score leaves no choice, and of none at all there is none.
TROUPE_INLINE bool leaves_choice(float highest) {
  return highest > kLowestFinite && highest <= -kLowestFinite;
}

/// exp(x), 0 where that is a denormal: a GPU's float64 has no mode that makes it so.
TROUPE_INLINE double exp_or_zero(double x) {
  const double y = exp_f64(x);
  return x < -708.39641853226408 ? 0.0 : y;
}

/// The probability of a token but for a factor; 0 where min_p rules it out.
TROUPE_INLINE double weight(const SampleCall& call, float score, float highest) {
  const double y = exp_or_zero((static_cast<double>(score) - static_cast<double>(highest)) /
                               static_cast<double>(call.temperature));
  return y < static_cast<double>(call.min_p) ? 0.0 : y;
}

/// Whether top_k and top_p leave out nothing of a vocabulary.
TROUPE_INLINE bool keeps_all(const SampleCall& call, std::int64_t vocab) {
  return (call.top_k <= 0 || call.top_k >= vocab) && !(call.top_p < 1.0f);
}

TROUPE_INLINE float shown_logprob(double p) {
  return p > static_cast<double>(kLogprobMin) ? static_cast<float>(p) : kLogprobMin;  // NaN too
}

}  // namespace troupe::kernels::sampling
