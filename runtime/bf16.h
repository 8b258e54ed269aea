#pragma once

#include <bit>
#include <cstdint>

/// The narrow number formats. Always inlined, so that a file with wide instructions never lends its
/// copy to another, and without branches, so that loops of them become vector code.
namespace troupe {

/// The upper half of a float32.
struct Bf16 {
  std::uint16_t bits = 0;
};

[[gnu::always_inline]] inline constexpr float to_float(Bf16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}

/// Nearest, ties to even; 0 below 2^-126 (denormals are zero), 7fc0 for a NaN.
[[gnu::always_inline]] inline constexpr Bf16 to_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x), size = u & 0x7fffffffu;
  const std::uint32_t near = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const std::uint32_t normal = size < 0x00800000u ? 0u : near;
  return {static_cast<std::uint16_t>(size > 0x7f800000u ? 0x7fc0u : normal)};
}

/// An IEEE half, exactly.
[[gnu::always_inline]] inline constexpr float f16_to_float(std::uint16_t x) {
  const std::uint32_t sign = (x & 0x8000u) << 16, exponent = (x >> 10) & 31u, rest = x & 0x3ffu;
  if (exponent == 0) {
    const float value = static_cast<float>(rest) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | (wide << 23) | (rest << 13));
}

/// An e4m3 byte (OCP 8-bit floating point, "E4M3"), exactly: 448 is the largest, 7f and ff are NaN.
[[gnu::always_inline]] inline constexpr float e4m3_to_float(std::uint8_t x) {
  const std::uint32_t sign = (x & 0x80u) << 24, exponent = (x >> 3) & 15u, rest = x & 7u;
  if ((x & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {
    const float value = static_cast<float>(rest) * 0x1p-9f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (rest << 20));
}

/// Nearest, ties to even; beyond 448 it stays there; a NaN gives 7f.
[[gnu::always_inline]] inline constexpr std::uint8_t to_e4m3(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x), size = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
  const float value = std::bit_cast<float>(size);
  const float shifted = value + 24576.0f;  // 1.5 * 2^14: rounds to steps of 2^-9
  const std::uint32_t small = std::bit_cast<std::uint32_t>(shifted) & 0xfu;
  const std::uint32_t large = ((size + 0x7ffffu + ((size >> 20) & 1u)) >> 20) - (120u << 3);
  const std::uint32_t code = value < 0x1p-6f ? small : large;
  const std::uint32_t held = value >= 448.0f ? 0x7eu : code;
  return static_cast<std::uint8_t>(size > 0x7f800000u ? 0x7fu : sign | held);
}

}  // namespace troupe
