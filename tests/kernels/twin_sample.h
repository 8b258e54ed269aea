#pragma once

#include <vector>

#include "kernels/sample.h"

/// What kernels/sample.h defines, in plain scalar C++.
namespace troupe::kernels {

struct SampleAnswer {
  SampleResult result;
  std::vector<TokenLogprob> top;
};

/// Of one row; `used`: the list that the call's tokens are in.
SampleAnswer exact_sample(const SampleCall& call, const std::vector<float>& row,
                          const std::vector<AdjustedToken>& adjusted,
                          const std::vector<std::uint32_t>& masks);

}  // namespace troupe::kernels
