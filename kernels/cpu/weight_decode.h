#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/scalar_math.h"
#include "kernels/weight.h"
#include "runtime/bf16.h"

/// What single codes and scales mean, in plain C++.
namespace troupe::kernels::cpu {

/// The magnitudes of e2m1.
inline constexpr float kFp4Magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

TROUPE_INLINE constexpr float fp4_value(std::uint32_t code) {
  const float magnitude = kFp4Magnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

TROUPE_INLINE float e8m0_value(std::uint32_t code) {
  return std::bit_cast<float>(code == 255 ? 0x7fc00000u : code << 23);
}

/// The i-th number of an array that need not be aligned.
TROUPE_INLINE float number_at(const std::byte* data, DType dtype, std::int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data + i * 4, sizeof value);
    return value;
  }
  if (dtype == DType::kF8E8M0) return e8m0_value(static_cast<std::uint32_t>(data[i]));
  std::uint16_t half;
  std::memcpy(&half, data + i * 2, sizeof half);
  return dtype == DType::kF16 ? f16_to_float(half) : to_float(Bf16{half});
}

/// RN32((code - zero) * scale) of `count` elements of row `row` from column `column` on; `codes`
/// points at the row.
void decode(const StoredMatrix& stored, const std::byte* codes, std::int64_t row,
            std::int64_t column, std::int64_t count, float* out);

}  // namespace troupe::kernels::cpu
