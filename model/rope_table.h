#pragma once

#include <cstdint>
#include <vector>

#include "kernels/rope.h"
#include "model/config.h"

namespace troupe {

/// How much YaRN stretches a magnitude: 0.1 mscale ln(scale) + 1 (arXiv 2309.00071, eq. 22).
double yarn_mscale(double scale, double mscale);

/// Angle per position of each pair, [rope / 2], as transformers' modeling_rope_utils.py computes
/// them.
std::vector<float> rope_inverse_frequencies(const ModelConfig& config);

/// What cos and sin are multiplied with (YaRN's attention factor).
double rope_attention_factor(const ModelConfig& config);

/// What attention scores are multiplied with: 1 / sqrt(nope + rope), times the square of YaRN's
/// magnitude for mscale_all_dim.
float attention_scale(const ModelConfig& config);

/// cos and sin of positions [0, positions), made once with the kernels' own arithmetic, so that
/// they are the same on every processor.
class RopeTables {
 public:
  RopeTables(const ModelConfig& config, std::int32_t positions);
  kernels::RopeTable table() const { return {cos_.data(), sin_.data(), positions_, half_}; }

 private:
  std::size_t positions_ = 0, half_ = 0;
  std::vector<float> cos_, sin_;  // [positions, rope / 2]
};

}  // namespace troupe
