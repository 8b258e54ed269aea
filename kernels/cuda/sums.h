#pragma once

#include "kernels/cuda/math.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {

/// Slices as they come, joined as the binary tree ((s0 + s1) + (s2 + s3)) + ..., of some sums at
/// once.
template <int kTrees>
class SliceTrees {
 public:
  /// The i-th sum of the next slice.
  DEVICE void add(int i, float sum) {
    bool carried = true;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (!carried) continue;
      carried = (count_ >> level & 1) != 0;
      if (carried)
        sum = levels_[i][level] + sum;
      else
        levels_[i][level] = sum;
    }
  }
  /// After all of a slice.
  DEVICE void end_slice() { ++count_; }
  /// Of all slices; their number is a power of two, kSumSlices at most.
  DEVICE float total(int i) const {
    float sum = levels_[i][0];
#pragma unroll
    for (int level = 1; level < kLevels; ++level)
      if ((count_ >> level & 1) != 0) sum = levels_[i][level];
    return sum;
  }

 private:
  static constexpr int kLevels = 4;
  float levels_[kTrees][kLevels] = {};
  int count_ = 0;
};

/// Of one sum.
class SliceTree {
 public:
  DEVICE void add(float sum) {
    trees_.add(0, sum);
    trees_.end_slice();
  }
  DEVICE float total() const { return trees_.total(0); }

 private:
  SliceTrees<1> trees_;
};

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
