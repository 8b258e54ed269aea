#pragma once

#include <cstdint>
#include <vector>

#include "model/spec/model_spec.h"

namespace troupe {

/// Angle per position of each pair, [dim / 2], as transformers' modeling_rope_utils.py computes
/// them.
std::vector<float> rope_inverse_frequencies(const RopeSpec& rope);

/// cos and sin of positions [0, positions), made once with the kernels' own arithmetic, so that
/// they are the same on every processor.
class RopeTables {
 public:
  RopeTables(const RopeSpec& rope, std::int32_t positions);
  const std::vector<float>& cos() const { return cos_; }  ///< [positions, dim / 2]
  const std::vector<float>& sin() const { return sin_; }

 private:
  std::vector<float> cos_, sin_;
};

}  // namespace troupe
