#pragma once

#include "kernels/cuda/math.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {

/// Slices as they come, joined as the binary tree ((s0 + s1) + (s2 + s3)) + ...
class SliceTree {
 public:
  /// The next slice's sum.
  DEVICE void add(float sum) {
    bool carried = true;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (!carried) continue;
      carried = (count_ >> level & 1) != 0;
      if (carried)
        sum = levels_[level] + sum;
      else
        levels_[level] = sum;
    }
    ++count_;
  }
  /// Of all; their number is a power of two, kSumSlices at most.
  DEVICE float total() const {
    float sum = levels_[0];
#pragma unroll
    for (int level = 1; level < kLevels; ++level)
      if ((count_ >> level & 1) != 0) sum = levels_[level];
    return sum;
  }

 private:
  static constexpr int kLevels = 4;
  float levels_[kLevels] = {};
  int count_ = 0;
};

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
