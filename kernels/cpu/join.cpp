#include "kernels/join.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "runtime/limits.h"

namespace troupe::kernels {
namespace {

constexpr std::size_t kJoinedAtOnce =
    256;  // numbers of each part at a time: they stay in the cache

void join_stretch(std::span<const float* const> parts, std::size_t at, std::size_t count,
                  float* y) {
  std::array<std::array<float, kJoinedAtOnce>, limits::kSumSlices> sums;
  for (std::size_t p = 0; p < parts.size(); ++p) std::copy_n(parts[p] + at, count, sums[p].begin());
  for (std::size_t left = parts.size(); left > 1; left /= 2)
    for (std::size_t p = 0; p < left / 2; ++p)
      for (std::size_t i = 0; i < count; ++i) sums[p][i] = sums[2 * p][i] + sums[2 * p + 1][i];
  std::copy_n(sums[0].begin(), count, y);
}

}  // namespace

void cpu::join(Stream& stream, std::span<const float* const> parts, const float* bias,
               const Tensor& y) {
  assert(std::has_single_bit(parts.size()) && parts.size() <= limits::kSumSlices);
  const auto n = static_cast<std::size_t>(y.cols());
  each_row(stream, y, 0.1 * static_cast<double>(parts.size()), [&](std::int64_t r) {
    auto* out = head_of<float>(y, r);
    const std::size_t row = static_cast<std::size_t>(r) * n;
    for (std::size_t i = 0; i < n; i += kJoinedAtOnce)
      join_stretch(parts, row + i, std::min(kJoinedAtOnce, n - i), out + i);
    for (std::size_t i = 0; bias != nullptr && i < n; ++i) out[i] += bias[i];
  });
}

}  // namespace troupe::kernels
