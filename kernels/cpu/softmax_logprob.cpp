#include "kernels/softmax_logprob.h"

#include "kernels/scalar_math.h"

namespace troupe::kernels {
namespace {
constexpr std::size_t kLanes = 8;
}

LogSoftmax log_softmax(const float* logits, std::size_t n) {
  float highest = -__builtin_inff();
  for (std::size_t i = 0; i < n; ++i) highest = logits[i] > highest ? logits[i] : highest;

  // Element i belongs to running sum i % 8; the sums are joined as a binary tree.
  double sum[kLanes] = {};
  const auto term = [&](float logit) {
    const double e = exp_f64(static_cast<double>(logit) - static_cast<double>(highest));
    return logit == logit ? e : 0.0;
  };
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::size_t j = 0; j < kLanes; ++j) sum[j] += term(logits[i + j]);
  for (std::size_t j = 0; i + j < n; ++j) sum[j] += term(logits[i + j]);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) sum[j] += sum[j + half];
  return {highest, sum[0], log_f64(sum[0])};
}

}  // namespace troupe::kernels
