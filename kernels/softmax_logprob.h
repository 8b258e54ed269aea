#pragma once

#include <cstddef>

namespace troupe::kernels {

/// What turns logits into log-probabilities: log p_i = logit_i - max - log_sum.
struct LogSoftmax {
  float max = 0;
  double sum = 0;      ///< sum of exp(logit - max)
  double log_sum = 0;  ///< log of it

  double logprob(float logit) const {
    return static_cast<double>(logit) - static_cast<double>(max) - log_sum;
  }
};

/// One pass for the maximum, one for the sum, over one row of n >= 1 logits. The sum runs in
/// float64 in a fixed order. A NaN logit counts as -inf; if none is finite, all logprobs are NaN.
LogSoftmax log_softmax(const float* logits, std::size_t n);

}  // namespace troupe::kernels
