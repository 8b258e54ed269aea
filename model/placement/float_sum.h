#pragma once

#include <cstddef>

namespace troupe {

/// The float32 sum of `values` with PyTorch's order of additions on x86 processors: 8 lanes, 4
/// accumulators each, chunks of 16 (its vectorized inner reduction). Plans that are compared number
/// for number with plans made by PyTorch need the same rounding; the order is not ours to choose.
float pytorch_sum(const float* values, std::size_t count);

}  // namespace troupe
