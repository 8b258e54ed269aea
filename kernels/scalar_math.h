#pragma once

#include <bit>
#include <cstdint>

/// The transcendental functions of the kernels. The C library picks variants by processor, so the
/// same call gives other bits elsewhere; these are plain IEEE additions, multiplications and
/// divisions in a written order and give the same bits wherever they are compiled without
/// contraction. Always inlined, so that a translation unit with wide instructions never lends its
/// copy to another; free of branches where a loop of them should become vector code.
namespace troupe::kernels {

#ifdef __CUDACC__  // for both sides
#define TROUPE_INLINE [[gnu::always_inline]] __host__ __device__ static inline
#else
#define TROUPE_INLINE [[gnu::always_inline]] static inline
#endif

/// exp(x), float32, within 2 units in the last place; 0 below -87, so that no result is near a
/// denormal; inf above 88.73, NaN stays NaN. Cephes' expf: x = n ln2 + r, polynomial of degree 7.
TROUPE_INLINE float exp_f32(float x) {
  const bool zero = x < -87.0f;
  x = zero ? -87.0f : x;
  x = x > 89.0f ? 89.0f : x;
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504088896341f + kShift;
  const float n = shifted - kShift;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // 2^n in two factors: 2^128 is no float32.
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(shifted) - 0x4b400000u;
  const auto half = static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 1);
  const float a = std::bit_cast<float>((half + 127u) << 23);
  const float b = std::bit_cast<float>((bits - half + 127u) << 23);
  const float y = p * a * b;
  return zero ? 0.0f : y;
}

/// 1 / (1 + exp(-x)).
TROUPE_INLINE float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

/// Square root: one IEEE instruction, exact everywhere.
TROUPE_INLINE float sqrt_f32(float x) { return __builtin_sqrtf(x); }
TROUPE_INLINE double sqrt_f64(double x) { return __builtin_sqrt(x); }

/// exp(x), float64, about 1 unit in the last place; 0 below -745.2, inf above 709.8.
TROUPE_INLINE double exp_f64(double x) {
  x = x < -746.0 ? -746.0 : x;
  x = x > 710.0 ? 710.0 : x;
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = x * 1.4426950408889634074 + kShift;
  const double n = shifted - kShift;
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r + 1.0;
  const auto bits =
      static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(shifted) - 0x4338000000000000ull);
  const auto whole = static_cast<std::int32_t>(bits);
  const std::int32_t half = whole >> 1;
  const double a =
      std::bit_cast<double>(static_cast<std::uint64_t>(std::int64_t{half} + 1023) << 52);
  const double b = std::bit_cast<double>(
      static_cast<std::uint64_t>(std::int64_t{whole} - half + 1023) << 52);
  return p * a * b;
}

/// Natural logarithm, float64, about 1 unit in the last place; -inf at 0, NaN below, inf at inf.
TROUPE_INLINE double log_f64(double x) {
  if (!(x > 0)) return x == 0 ? -__builtin_inf() : __builtin_nan("");
  if (x > 1.7976931348623157e308) return x;
  int e = 0;
  if (x < 2.2250738585072014e-308) {
    x *= 18014398509481984.0;  // 2^54
    e = -54;
  }
  auto bits = std::bit_cast<std::uint64_t>(x);
  e += static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e += 1;
  }
  const double s = (m - 1) / (m + 1);  // log m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.1716
  const double z = s * s;
  double p = 1.0 / 25;
  p = p * z + 1.0 / 23;
  p = p * z + 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  const double log_m = 2 * s + 2 * s * z * p;
  return e * 6.93147180369123816490e-01 + (log_m + e * 1.90821492927058770002e-10);
}

/// x^y for x > 0.
TROUPE_INLINE double pow_f64(double x, double y) { return exp_f64(y * log_f64(x)); }

struct SinCos {
  double sin = 0, cos = 0;
};

/// sin and cos of x, |x| < 2^20, float64, absolute error below 1e-15.
TROUPE_INLINE SinCos sincos_f64(double x) {
  constexpr double kShift = 6755399441055744.0;
  const double shifted = x * 0.63661977236758134308 + kShift;
  const double n = shifted - kShift;
  // pi/2 in three parts of 33 bits each, so that n times a part is exact.
  const double r = ((x - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11) -
                   n * 2.02226624879595063154e-21;
  const double z = r * r;
  double s = -1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = s * z * r + r;
  double c = 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z * z - 0.5 * z + 1.0;
  switch (std::bit_cast<std::uint64_t>(shifted) & 3) {
    case 0: return {s, c};
    case 1: return {c, -s};
    case 2: return {-s, -c};
    default: return {-c, s};
  }
}

}  // namespace troupe::kernels
