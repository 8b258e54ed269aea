#pragma once

#include "kernels/cuda/math.h"

/// A softmax's steps over a tile of 32 scores of a query, which a quad of lanes has: lane l of it
/// columns 2 l and 2 l + 1 of each eight, as an mma leaves them. No step branches.
namespace troupe::kernels::TROUPE_CUDA_SPACE {

inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

/// For a maximum: a score that is NaN makes all of its query NaN, whatever the maximum.
#ifdef __CUDACC__
DEVICE float larger(float a, float b) { return fmaxf(a, b); }
#else
DEVICE float larger(float a, float b) { return a > b ? a : b; }
#endif

/// exp_f32 of what is not above 0, to the bit: 2^n is a float32 there.
DEVICE float exp_below(float x) {
  constexpr float kShift = 12582912.0f;
  const float shifted = x * 1.44269504088896341f + kShift;
  const float n = shifted - kShift;
  const float r = fma_f32(n, -0.693359375f, x) + n * 2.12194440e-4f;  // the first product is exact
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const float power =
      std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000u);
  return x < -87.0f ? 0.0f : p * power;
}

/// The sum of a query's weights: fours from the left, joined as a binary tree. A lane has the first
/// or the last two numbers of four fours, in pairs of bf16, and takes two of them from its
/// neighbour for two of its own.
DEVICE float sum_of_weights(Cta& cta, const std::uint32_t (&weights)[4]) {
  const int lane = cta.lane();
  const bool odd = lane % 2 != 0;
  float fours[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t theirs =
        cta.shuffle(kAllLanes, odd ? weights[i] : weights[2 + i], lane ^ 1);
    const std::uint32_t left = odd ? theirs : weights[i], right = odd ? weights[2 + i] : theirs;
    fours[i] = ((low_half(left) + high_half(left)) + low_half(right)) + high_half(right);
    fours[i] = fours[i] + cta.shuffle(kAllLanes, fours[i], lane ^ 2);
  }
  const float sum = fours[0] + fours[1];
  return sum + cta.shuffle(kAllLanes, sum, lane ^ 1);
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
