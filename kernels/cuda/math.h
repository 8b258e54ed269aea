#pragma once

#include <bit>

#include "kernels/cuda/device.h"
#include "kernels/scalar_math.h"
#include "runtime/bf16.h"

/// The instructions that kernels compute with, and what they mean on the host. nvcc is told
/// -ftz=true -fmad=false -prec-div=true -prec-sqrt=true: then +, -, *, / are what they are under
/// runtime/float_mode.h, and nothing is fused but here.
namespace troupe::kernels::TROUPE_CUDA_SPACE {

#ifdef __CUDACC__
/// a b + c, rounded once.
DEVICE float fma_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float root(float x) { return __fsqrt_rn(x); }
/// Two results as bf16, the first in the lower half: no denormals among them.
DEVICE std::uint32_t round_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
#else
DEVICE float fma_f32(float a, float b, float c) {
  asm("vfmadd231ss %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
  return c;
}
DEVICE float root(float x) { return __builtin_sqrtf(x); }
DEVICE std::uint32_t round_pair(float low, float high) {
  return std::uint32_t{to_bf16(low).bits} | std::uint32_t{to_bf16(high).bits} << 16;
}
#endif

/// The halves of a pair of bf16.
DEVICE float low_half(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
DEVICE float high_half(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

/// Two numbers, that of the lower half first.
struct Floats2 {
  float low, high;
};

/// Two IEEE halves, widened exactly, denormals too.
DEVICE Floats2 widen_halves(std::uint32_t pair) {
#ifdef __CUDACC__
  Floats2 two;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(two.low), "=f"(two.high)
      : "r"(pair));
  return two;
#else
  return {f16_to_float(static_cast<std::uint16_t>(pair)),
          f16_to_float(static_cast<std::uint16_t>(pair >> 16))};
#endif
}

/// Two e4m3 codes, the lower 16 bits of `two`. As IEEE halves they have another bias: 2^8 less.
DEVICE Floats2 e4m3_pair(std::uint32_t two) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t halves;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.rn.f16x2.e4m3x2 %0, l; }"
      : "=r"(halves)
      : "r"(two));
  return widen_halves(halves);
#else
  const std::uint32_t x = (two << 8 & 0xff00u) | (two << 16 & 0xff000000u);
  const std::uint32_t sizes = x & 0x7f007f00u;
  const std::uint32_t nans = (sizes + 0x01000100u) & 0x80008000u;  // 7f is a half's NaN with it
  const Floats2 small = widen_halves((x & 0x80008000u) | (sizes | nans) >> 1);
  return {small.low * 0x1p8f, small.high * 0x1p8f};
#endif
}

/// Two e2m1 codes, four bits each, the lower 8 bits of `two`: as halves 2^14 less.
DEVICE Floats2 e2m1_pair(std::uint32_t two) {
  const std::uint32_t x = (two & 15u) | (two << 12 & 0x000f0000u);
  const Floats2 small = widen_halves((x << 9 & 0x0e000e00u) | (x << 12 & 0x80008000u));
  return {small.low * 0x1p14f, small.high * 0x1p14f};
}

/// 2^23 and the lower four bits of x: the difference of two is that of the integers, exactly.
DEVICE float nibble_above_2_23(std::uint32_t x) {
#ifdef __CUDACC__
  std::uint32_t bits;
  asm("lop3.b32 %0, %1, 15, %2, 0xea;" : "=r"(bits) : "r"(x), "r"(0x4b000000u));  // x & 15 | ...
  return std::bit_cast<float>(bits);
#else
  return std::bit_cast<float>((x & 15u) | 0x4b000000u);
#endif
}

/// bf(x), widened.
DEVICE float bf(float x) { return to_float(to_bf16(x)); }

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
