#pragma once

#include <cstdint>

/// What products on a GPU take of the scratch beside their rows, where several CTAs share an
/// output (cuda/product.h).
namespace troupe::kernels {

inline constexpr std::int64_t kSharedK = 1024;             ///< no longer: one CTA has all of it
inline constexpr std::int64_t kSharedSumsMax = 12u << 20;  ///< bytes of partial sums, of a launch

constexpr std::int64_t shared_sums_bytes(std::int64_t k) {
  return k <= kSharedK ? 0 : kSharedSumsMax;
}

}  // namespace troupe::kernels
