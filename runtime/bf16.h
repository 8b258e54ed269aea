#pragma once

#include <bit>
#include <cstdint>

namespace troupe {

/// The upper half of a float32.
struct Bf16 {
  std::uint16_t bits = 0;
};

inline float to_float(Bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

/// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
inline Bf16 to_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

}  // namespace troupe
