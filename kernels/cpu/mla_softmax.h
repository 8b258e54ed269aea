#pragma once

#include "kernels/scalar_math.h"
#include "runtime/limits.h"

namespace troupe::kernels::cpu {

/// The softmax of one head so far.
struct OnlineSoftmax {
  float highest = -__builtin_inff();
  float total = 0;
};

/// Turns the first `count` scores of a chunk into weights relative to the new maximum and the rest
/// into zeros; returns the factor that brings what was summed before to the new maximum. The sum
/// runs as 16 running sums (position p belongs to p % 16), joined as a binary tree.
TROUPE_INLINE float add_chunk(OnlineSoftmax& s, float* score, int count) {
  constexpr int kChunk = limits::kAttentionChunk;
  static_assert(kChunk % 16 == 0);
  for (int p = count; p < kChunk; ++p) score[p] = -__builtin_inff();
  float lane[16];
  for (int j = 0; j < 16; ++j) lane[j] = s.highest;
  for (int p = 0; p < kChunk; p += 16)
    for (int j = 0; j < 16; ++j) lane[j] = score[p + j] > lane[j] ? score[p + j] : lane[j];
  float highest = lane[0];
  for (int j = 1; j < 16; ++j) highest = lane[j] > highest ? lane[j] : highest;
  // Nothing was summed before the first chunk.
  const float shrink = s.highest == -__builtin_inff() ? 0.0f : exp_f32(s.highest - highest);
  s.highest = highest;
  float sum[16] = {};
  for (int p = 0; p < kChunk; p += 16) {
    for (int j = 0; j < 16; ++j) {
      const float weight = exp_f32(score[p + j] - highest);
      score[p + j] = p + j < count ? weight : 0.0f;
      sum[j] += score[p + j];
    }
  }
  for (int half = 8; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
  s.total = s.total * shrink + sum[0];
  return shrink;
}

}  // namespace troupe::kernels::cpu
