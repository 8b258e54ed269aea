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

/// bf(x), widened.
DEVICE float bf(float x) { return to_float(to_bf16(x)); }

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
