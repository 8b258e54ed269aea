#pragma once

#include <cstdint>

namespace troupe::kernels {
namespace {

/// Element i is in lane i % 128, a chain of fused multiply-adds; the upper half of the lanes is
/// added to the lower until one is left.
struct FmaSums {
  static float squares(const float* x, std::int64_t n) {
    alignas(64) float lanes[128] = {};
    std::int64_t left = n;
    for (; left >= 128; left -= 128, x += 128)
      for (std::int64_t j = 0; j < 128; ++j) lanes[j] = __builtin_fmaf(x[j], x[j], lanes[j]);
    for (std::int64_t j = 0; j < left; ++j) lanes[j] = __builtin_fmaf(x[j], x[j], lanes[j]);
    for (std::int64_t half = 64; half > 0; half /= 2)
      for (std::int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    return lanes[0];
  }
};

}  // namespace
}  // namespace troupe::kernels
