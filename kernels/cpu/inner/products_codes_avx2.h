#pragma once

// After avx2/simd.h.

#include "kernels/cpu/inner/products_tiles.h"

/// Codes as pairs of bf16 with AVX2.
namespace troupe::kernels::cpu {
namespace {

/// Scales of 8 outputs; `step` 0: one for all.
TROUPE_INLINE __m256 scales_of_8(DType dtype, const std::byte* from, bool one) {
  if (one) return _mm256_set1_ps(number_at(from, dtype, 0));
  if (dtype == DType::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  if (dtype == DType::kF8E8M0) {
    const __m256i code =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    const __m256i nan = _mm256_cmpeq_epi32(code, _mm256_set1_epi32(255));
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(code, 23),
                                               _mm256_srli_epi32(nan, 1)));
  }
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if (dtype == DType::kF16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/// The bits of x rounded to bf16, in the upper halves; products are never subnormal.
TROUPE_INLINE __m256i rounded_8(__m256 x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i sum =
      _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(sum, _mm256_set1_epi32(0x7fc00000), _mm256_castps_si256(nan));
}

/// Two k of 8 outputs, whose bf16 are the upper halves.
struct RoundedPair {
  __m256i first, last;

  [[gnu::always_inline]] static __m256i upper(__m256i x) {
    return _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
  }
  [[gnu::always_inline]] F32 even() const { return (F32)upper(first); }
  [[gnu::always_inline]] F32 odd() const { return (F32)upper(last); }
  [[gnu::always_inline]] I32 packed() const {
    return (I32)_mm256_or_si256(_mm256_srli_epi32(first, 16), upper(last));
  }
};

TROUPE_INLINE RoundedPair rounded_pair(F32 even, F32 odd) {
  return {rounded_8(even), rounded_8(odd)};
}

TROUPE_INLINE RoundedPair scaled(__m256 even, __m256 odd, __m256 scale) {
  return {rounded_8(_mm256_mul_ps(even, scale)), rounded_8(_mm256_mul_ps(odd, scale))};
}

TROUPE_INLINE __m256 e4m3_8(__m256i code) {
  const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 24);
  const __m256 small =
      _mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(1.0f / 512));
  const __m256i normal =
      _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23));
  const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
  __m256i value = _mm256_blendv_epi8(normal, _mm256_castps_si256(small), is_small);
  const __m256i nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
  value = _mm256_or_si256(value, _mm256_srli_epi32(nan, 1));
  return _mm256_castsi256_ps(_mm256_or_si256(value, sign));
}

/// Bits [shift, shift + 4).
TROUPE_INLINE __m256i nibbles_8(__m256i codes, int shift) {
  return _mm256_and_si256(_mm256_srli_epi32(codes, shift), _mm256_set1_epi32(15));
}

TROUPE_INLINE __m256 int4_8(__m256i code, __m256 zero) {
  return _mm256_sub_ps(_mm256_cvtepi32_ps(code), zero);
}

TROUPE_INLINE __m256 fp4_8(__m256i code) {
  const __m256 magnitude = _mm256_permutevar8x32_ps(_mm256_loadu_ps(kFp4Magnitudes), code);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(8)), 28);
  return _mm256_or_ps(magnitude, _mm256_castsi256_ps(sign));
}

TROUPE_INLINE __m256 zeros_of_8(const std::byte* nibbles) {
  std::uint32_t all;
  std::memcpy(&all, nibbles, sizeof all);
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(all)), shifts);
  return _mm256_cvtepi32_ps(_mm256_and_si256(codes, _mm256_set1_epi32(15)));
}

/// What all forms of codes share: a block's place, and the scales of the panel's outputs.
class CodesPlace {
 public:
  CodesPlace(const WeightLayout& l, const std::byte* panel) : layout_(l), panel_(panel) {}

  [[gnu::always_inline]] void go(std::int64_t block) {
    codes = panel_ + block * layout_.block_bytes;
    const std::int64_t next = layout_.scaled ? block * WeightLayout::kBlock / layout_.scale_k : 0;
    if (next == column_) return;
    column_ = next;
    const bool one = layout_.scale_n != 1;
    const std::byte* from = panel_ + layout_.scales_at + column_ * layout_.scale_bytes;
    for (int v = 0; v < 4; ++v) {
      if (layout_.scaled)
        scale[v] = scales_of_8(layout_.scale_dtype,
                               from + (one ? 0 : v * layout_.scale_bytes / 4), one);
      if (layout_.zeros)
        zero[v] = zeros_of_8(panel_ + layout_.zeros_at + column_ * 16 + v * 4);
    }
  }

  const std::byte* codes = nullptr;
  __m256 scale[4] = {all(1.0f), all(1.0f), all(1.0f), all(1.0f)};
  __m256 zero[4] = {all(8.0f), all(8.0f), all(8.0f), all(8.0f)};

 private:
  const WeightLayout& layout_;
  const std::byte* panel_;
  std::int64_t column_ = -1;
};

class Fp8 {
 public:
  static constexpr int kPairs = 2;

  Fp8(const WeightLayout& l, const std::byte* panel) : at_(l, panel) {}

  struct Step {
    __m128i first, last;  ///< two codes of each output
    __m256 scale;

    [[gnu::always_inline]] RoundedPair pair(int j) const {
      const __m256i codes = _mm256_cvtepu16_epi32(j == 0 ? first : last);
      return scaled(e4m3_8(_mm256_and_si256(codes, _mm256_set1_epi32(0xff))),
                    e4m3_8(_mm256_srli_epi32(codes, 8)), scale);
    }
  };

  [[gnu::always_inline]] void go(std::int64_t block) { at_.go(block); }
  [[gnu::always_inline]] Step step(int v, int i) const {
    const std::byte* from = at_.codes + v / 2 * 512 + v % 2 * 32 + i * 64;
    const __m256i apart = _mm256_permute4x64_epi64(
        _mm256_load_si256(reinterpret_cast<const __m256i*>(from)), _MM_SHUFFLE(3, 1, 2, 0));
    return {_mm256_castsi256_si128(apart), _mm256_extracti128_si256(apart, 1), at_.scale[v]};
  }

 private:
  CodesPlace at_;
};

class Int4 {
 public:
  static constexpr int kPairs = 8;

  Int4(const WeightLayout& l, const std::byte* panel) : at_(l, panel) {}

  struct Step {
    __m256i even, odd;  ///< eight k of each output
    __m256 scale, zero;

    [[gnu::always_inline]] RoundedPair pair(int j) const {
      return scaled(int4_8(nibbles_8(even, j * 4), zero), int4_8(nibbles_8(odd, j * 4), zero),
                    scale);
    }
  };

  [[gnu::always_inline]] void go(std::int64_t block) { at_.go(block); }
  [[gnu::always_inline]] Step step(int v, int i) const {
    const std::byte* from = at_.codes + v / 2 * 256 + i * 128 + v % 2 * 64;
    const __m256 a = _mm256_load_ps(reinterpret_cast<const float*>(from));
    const __m256 b = _mm256_load_ps(reinterpret_cast<const float*>(from + 32));
    return {in_order(_mm256_shuffle_ps(a, b, 0x88)), in_order(_mm256_shuffle_ps(a, b, 0xdd)),
            at_.scale[v], at_.zero[v]};
  }

 private:
  [[gnu::always_inline]] static __m256i in_order(__m256 x) {
    return _mm256_permute4x64_epi64(_mm256_castps_si256(x), _MM_SHUFFLE(3, 1, 2, 0));
  }

  CodesPlace at_;
};

/// e2m1. A power of two times it is exact; kRounds: for other scales.
template <bool kRounds>
class Fp4 {
 public:
  static constexpr int kPairs = 4;

  Fp4(const WeightLayout& l, const std::byte* panel) : at_(l, panel) {}

  struct Step {
    __m256i codes;  ///< eight k of each output
    __m256 scale;

    [[gnu::always_inline]] auto pair(int j) const {
      const __m256 even = fp4_8(nibbles_8(codes, j * 8)), odd = fp4_8(nibbles_8(codes, j * 8 + 4));
      if constexpr (kRounds)
        return scaled(even, odd, scale);
      else
        return ExactPair{_mm256_mul_ps(even, scale), _mm256_mul_ps(odd, scale)};
    }
  };

  [[gnu::always_inline]] void go(std::int64_t block) { at_.go(block); }
  [[gnu::always_inline]] Step step(int v, int i) const {
    const std::byte* from = at_.codes + v / 2 * 256 + i * 64 + v % 2 * 32;
    return {_mm256_load_si256(reinterpret_cast<const __m256i*>(from)), at_.scale[v]};
  }

 private:
  CodesPlace at_;
};

/// As few rows multiply codes as they are expanded.
TROUPE_INLINE std::int64_t code_rows(const WeightLayout&) { return 2; }

template <class Body>
TROUPE_INLINE void with_codes(const WeightLayout& l, const std::byte* panel, const Body& body) {
  const auto as = [&](auto&& form) { body(form); };
  if (l.turned())
    return l.codes == Codes::kFp8 ? as(Turned<Fp8, rounded_pair>(l, panel))
                                  : as(Turned<Int4, rounded_pair>(l, panel));
  if (l.codes == Codes::kFp8) return as(Fp8(l, panel));
  if (l.codes == Codes::kInt4) return as(Int4(l, panel));
  l.scale_dtype == DType::kF8E8M0 ? as(Fp4<false>(l, panel)) : as(Fp4<true>(l, panel));
}

}  // namespace
}  // namespace troupe::kernels::cpu
