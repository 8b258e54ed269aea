#pragma once

#include <cstdint>
#include <vector>

#include "runtime/numerics.h"

namespace troupe::kernels::twin {

/// A head's keys and values, one row a position, as the cache's type holds them.
struct Context {
  Numerics numerics = Numerics::kReference;
  float scale = 1;
  std::int64_t window = 0;
  std::vector<std::vector<float>> keys, values;
};

/// The nearest number of e4m3, ties to even, saturating.
float e4m3(float x);
/// x as a cache of these numerics holds it.
float cached(Numerics numerics, float x);

/// What a query at `position` gets; `sink` may be null.
std::vector<float> attention(const Context& context, const std::vector<float>& query,
                             std::int64_t position, const float* sink);

}  // namespace troupe::kernels::twin
