#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/scalar_math.h"

/// What the inner kernels need of 8 lanes: their own instructions only. The rest they write with
/// the compiler's vector operators. Included by files of this family only.
namespace troupe::kernels {
namespace {

constexpr int kLanes = 8;
using F32 = float __attribute__((vector_size(32)));
using I32 = std::int32_t __attribute__((vector_size(32)));

TROUPE_INLINE F32 load(const float* p) { return _mm256_loadu_ps(p); }
TROUPE_INLINE void save(float* p, F32 x) { _mm256_storeu_ps(p, x); }
TROUPE_INLINE F32 all(float x) { return _mm256_set1_ps(x); }
TROUPE_INLINE I32 all(std::int32_t x) { return (I32)_mm256_set1_epi32(x); }
TROUPE_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
/// a > b ? a : b
TROUPE_INLINE F32 larger(F32 a, F32 b) { return _mm256_max_ps(a, b); }
TROUPE_INLINE float largest(F32 x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

TROUPE_INLINE I32 load_dwords(const void* p) {
  return (I32)_mm256_loadu_si256(static_cast<const __m256i*>(p));
}
TROUPE_INLINE void save_dwords(void* p, I32 x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), (__m256i)x);
}
/// 8 unsigned halves, widened.
TROUPE_INLINE I32 load_halves(const void* p) {
  return (I32)_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
/// The lower halves.
TROUPE_INLINE void save_halves(void* p, I32 x) {
  const __m256i low = _mm256_and_si256((__m256i)x, _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
/// The first and the last 8 of 16 halves, widened.
TROUPE_INLINE I32 first_halves(I32 x) {
  return (I32)_mm256_cvtepu16_epi32(_mm256_castsi256_si128((__m256i)x));
}
TROUPE_INLINE I32 last_halves(I32 x) {
  return (I32)_mm256_cvtepu16_epi32(_mm256_extracti128_si256((__m256i)x, 1));
}
/// 16 codes of e4m3 as bf16.
TROUPE_INLINE I32 load_e4m3(const void* p) {
  const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i size = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f));
  // Where the exponent is not 0, it grows by 120; where it is, i steps of 2^-9 are the i-th here.
  const __m256i normal =
      _mm256_add_epi16(_mm256_slli_epi16(size, 4), _mm256_set1_epi16(120 << 7));
  const __m256i steps = _mm256_broadcastsi128_si256(_mm_setr_epi16(
      0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
  const __m256i two_bytes =
      _mm256_add_epi16(_mm256_mullo_epi16(size, _mm256_set1_epi16(0x0202)),
                       _mm256_set1_epi16(0x0100));
  const __m256i is_small = _mm256_cmpgt_epi16(_mm256_set1_epi16(8), size);
  const __m256i is_nan = _mm256_cmpeq_epi16(size, _mm256_set1_epi16(0x7f));
  __m256i x = _mm256_blendv_epi8(normal, _mm256_shuffle_epi8(steps, two_bytes), is_small);
  x = _mm256_or_si256(x, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7fc0)));
  const __m256i sign = _mm256_set1_epi16(static_cast<short>(0x8000));
  return (I32)_mm256_or_si256(x, _mm256_and_si256(_mm256_slli_epi16(codes, 8), sign));
}

/// rows[i] lane j becomes rows[j] lane i.
TROUPE_INLINE void transpose(I32 (&rows)[8]) {
  __m256i a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    const auto x = (__m256i)rows[2 * i], y = (__m256i)rows[2 * i + 1];
    a[2 * i] = _mm256_unpacklo_epi32(x, y);
    a[2 * i + 1] = _mm256_unpackhi_epi32(x, y);
  }
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
  // b[4 i + j]: columns j and 4 + j of rows 4 i to 4 i + 3, one in each half.
  for (int j = 0; j < 4; ++j) {
    rows[j] = (I32)_mm256_permute2x128_si256(b[j], b[4 + j], 0x20);
    rows[4 + j] = (I32)_mm256_permute2x128_si256(b[j], b[4 + j], 0x31);
  }
}

}  // namespace
}  // namespace troupe::kernels
