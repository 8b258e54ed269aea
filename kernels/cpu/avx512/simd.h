#pragma once

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/scalar_math.h"
#include "runtime/bf16.h"

/// What the inner kernels need of 16 lanes: their own instructions only. The rest they write with
/// the compiler's vector operators. Included by files of this family only.
namespace troupe::kernels {
namespace {

constexpr int kLanes = 16;
using F32 = float __attribute__((vector_size(64)));
using I32 = std::int32_t __attribute__((vector_size(64)));

/// The magnitudes of e4m3 as bf16.
struct alignas(64) E4m3Table {
  std::uint16_t bf16[128];
};
constexpr E4m3Table make_e4m3_table() {
  E4m3Table t = {};
  for (std::uint32_t i = 0; i < 128; ++i)
    t.bf16[i] = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(e4m3_to_float(static_cast<std::uint8_t>(i))) >> 16);
  return t;
}
constexpr E4m3Table kE4m3 = make_e4m3_table();

TROUPE_INLINE F32 load(const float* p) { return _mm512_loadu_ps(p); }
TROUPE_INLINE void save(float* p, F32 x) { _mm512_storeu_ps(p, x); }
TROUPE_INLINE F32 all(float x) { return _mm512_set1_ps(x); }
TROUPE_INLINE I32 all(std::int32_t x) { return (I32)_mm512_set1_epi32(x); }
TROUPE_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
/// Pairs of bf16: fma(a_odd, b_odd, sum) is what a_even b_even is added to, by an fma too.
TROUPE_INLINE F32 add_dot(F32 sum, I32 a, I32 b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
/// One pair of bf16 in all lanes.
TROUPE_INLINE I32 all_pairs(const std::byte* pair) {
  std::int32_t both;
  std::memcpy(&both, pair, sizeof both);
  return all(both);
}
/// a > b ? a : b
TROUPE_INLINE F32 larger(F32 a, F32 b) { return _mm512_max_ps(a, b); }
TROUPE_INLINE float largest(F32 x) { return _mm512_reduce_max_ps(x); }

TROUPE_INLINE I32 load_dwords(const void* p) { return (I32)_mm512_loadu_si512(p); }
TROUPE_INLINE void save_dwords(void* p, I32 x) { _mm512_storeu_si512(p, (__m512i)x); }
/// 16 unsigned halves, widened.
TROUPE_INLINE I32 load_halves(const void* p) {
  return (I32)_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
/// The lower halves.
TROUPE_INLINE void save_halves(void* p, I32 x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16((__m512i)x));
}
/// The first and the last 16 of 32 halves, widened.
TROUPE_INLINE I32 first_halves(I32 x) {
  return (I32)_mm512_cvtepu16_epi32(_mm512_castsi512_si256((__m512i)x));
}
TROUPE_INLINE I32 last_halves(I32 x) {
  return (I32)_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64((__m512i)x, 1));
}
/// 32 codes of e4m3 as bf16.
TROUPE_INLINE I32 load_e4m3(const void* p) {
  const __m512i codes = _mm512_cvtepu8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  const auto table = [](int i) { return _mm512_load_si512(kE4m3.bf16 + i * 32); };
  const __m512i small = _mm512_permutex2var_epi16(table(0), codes, table(1));
  const __m512i large = _mm512_permutex2var_epi16(table(2), codes, table(3));
  const __mmask32 is_large = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40));
  const __m512i size = _mm512_mask_mov_epi16(small, is_large, large);
  const __m512i sign = _mm512_set1_epi16(static_cast<short>(0x8000));
  return (I32)_mm512_ternarylogic_epi32(size, _mm512_slli_epi16(codes, 8), sign, 0xf8);
}

/// rows[i] lane j becomes rows[j] lane i.
TROUPE_INLINE void transpose(I32 (&rows)[16]) {
  __m512i a[16], b[16];
  for (int i = 0; i < 8; ++i) {
    const auto x = (__m512i)rows[2 * i], y = (__m512i)rows[2 * i + 1];
    a[2 * i] = _mm512_unpacklo_epi32(x, y);
    a[2 * i + 1] = _mm512_unpackhi_epi32(x, y);
  }
  for (int i = 0; i < 4; ++i) {
    b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
  // b[4 i + j]: columns j, 4 + j, 8 + j, 12 + j of rows 4 i to 4 i + 3, one in each quarter.
  for (int j = 0; j < 4; ++j) {
    const __m512i even_low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
    rows[j] = (I32)_mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[4 + j] = (I32)_mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[8 + j] = (I32)_mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    rows[12 + j] = (I32)_mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

}  // namespace
}  // namespace troupe::kernels
