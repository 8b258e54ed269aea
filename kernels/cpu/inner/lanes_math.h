#pragma once

// After a family's simd.h.

namespace troupe::kernels {
namespace {

/// exp_f32 of scalar_math.h, the same operations in the same order.
TROUPE_INLINE F32 exp_lanes(F32 x) {
  const I32 zero = x < all(-87.0f);
  x = zero ? all(-87.0f) : x;
  x = x > all(89.0f) ? all(89.0f) : x;
  const F32 shift = all(12582912.0f);
  const F32 shifted = x * all(1.44269504088896341f) + shift;
  const F32 n = shifted - shift;
  const F32 r = (x - n * all(0.693359375f)) + n * all(2.12194440e-4f);
  F32 p = all(1.9875691500e-4f);
  p = p * r + all(1.3981999507e-3f);
  p = p * r + all(8.3334519073e-3f);
  p = p * r + all(4.1665795894e-2f);
  p = p * r + all(1.6666665459e-1f);
  p = p * r + all(5.0000001201e-1f);
  p = p * (r * r) + r + all(1.0f);
  const I32 bits = (I32)shifted - all(0x4b400000);
  const I32 half = bits >> 1;
  const F32 a = (F32)((half + all(127)) << 23);
  const F32 b = (F32)((bits - half + all(127)) << 23);
  return zero ? all(0.0f) : p * a * b;
}

/// to_bf16 of runtime/bf16.h, as a float32.
TROUPE_INLINE F32 bf(F32 x) {
  const I32 u = (I32)x, size = u & all(0x7fffffff);
  const I32 near = (u + all(0x7fff) + ((u >> 16) & all(1))) & all(~0xffff);
  const I32 normal = size < all(0x00800000) ? all(0) : near;
  return (F32)(size > all(0x7f800000) ? all(0x7fc00000) : normal);
}

TROUPE_INLINE F32 load_bf16(const void* p) { return (F32)(load_halves(p) << 16); }

}  // namespace
}  // namespace troupe::kernels
