#pragma once

// After avx512/simd.h.

#include "kernels/cpu/inner/products_tiles.h"

/// Codes as pairs of bf16 with AVX-512 (VBMI, BF16).
namespace troupe::kernels::cpu {
namespace {

/// The magnitudes of e4m3, and what four bits mean.
struct alignas(64) CodeTables {
  float e4m3[128];
  float int4[16];  ///< less 8
  float fp4[16];
  std::uint16_t pairs[32];  ///< of 16 even and 16 odd words
};

constexpr CodeTables make_code_tables() {
  CodeTables t = {};
  for (std::uint32_t i = 0; i < 128; ++i) t.e4m3[i] = e4m3_to_float(static_cast<std::uint8_t>(i));
  for (int i = 0; i < 16; ++i) {
    t.int4[i] = static_cast<float>(i - 8);
    t.fp4[i] = fp4_value(static_cast<std::uint32_t>(i));
    t.pairs[2 * i] = static_cast<std::uint16_t>(i);
    t.pairs[2 * i + 1] = static_cast<std::uint16_t>(i + 16);
  }
  return t;
}

constexpr CodeTables kCodes = make_code_tables();

TROUPE_INLINE __m512 scales_of_16(DType dtype, const std::byte* from, bool one) {
  if (one) return _mm512_set1_ps(number_at(from, dtype, 0));
  if (dtype == DType::kF32) return _mm512_loadu_ps(from);
  if (dtype == DType::kF8E8M0) {
    const __m512i code =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(255));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(_mm512_slli_epi32(code, 23), nan,
                                                     _mm512_set1_epi32(0x7fc00000)));
  }
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  if (dtype == DType::kF16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

TROUPE_INLINE __m512i words(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

/// bf16(code * scale) of the 128 magnitudes of e4m3, its lower and upper bytes.
struct Fp8Table {
  __m512i low[2], high[2];

  [[gnu::always_inline]] explicit Fp8Table(__m512 scale) {
    for (int half = 0; half < 2; ++half) {
      const float* from = kCodes.e4m3 + half * 64;
      const __m512i a = words(_mm512_mul_ps(_mm512_load_ps(from), scale),
                              _mm512_mul_ps(_mm512_load_ps(from + 16), scale));
      const __m512i b = words(_mm512_mul_ps(_mm512_load_ps(from + 32), scale),
                              _mm512_mul_ps(_mm512_load_ps(from + 48), scale));
      low[half] = join(_mm512_cvtepi16_epi8(a), _mm512_cvtepi16_epi8(b));
      high[half] = join(_mm512_cvtepi16_epi8(_mm512_srli_epi16(a, 8)),
                        _mm512_cvtepi16_epi8(_mm512_srli_epi16(b, 8)));
    }
  }
  [[gnu::always_inline]] static __m512i join(__m256i a, __m256i b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
  }
  /// A row of a tile: two rows of bf16.
  [[gnu::always_inline]] void look_up(__m512i codes, __m512i& first, __m512i& last) const {
    const __m512i lower = _mm512_permutex2var_epi8(low[0], codes, low[1]);
    __m512i upper = _mm512_permutex2var_epi8(high[0], codes, high[1]);
    // The sign of the code turns that of the number.
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    upper = _mm512_ternarylogic_epi32(upper, codes, sign, 0x78);
    first = _mm512_unpacklo_epi8(lower, upper);
    last = _mm512_unpackhi_epi8(lower, upper);
  }
};

TROUPE_INLINE PackedPair rounded_pair(F32 even, F32 odd) {
  return {(I32)_mm512_permutexvar_epi16(_mm512_load_si512(kCodes.pairs), words(even, odd))};
}

TROUPE_INLINE __m512i scaled_pairs(__m512i pairs, __m512 scale) {
  const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  const __m512 odd = _mm512_castsi512_ps(
      _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  return _mm512_permutexvar_epi16(_mm512_load_si512(kCodes.pairs),
                                  words(_mm512_mul_ps(even, scale), _mm512_mul_ps(odd, scale)));
}

/// Scales of 16 outputs of a block: `t` counts the panel's two tiles.
TROUPE_INLINE __m512 block_scales(const WeightLayout& l, const std::byte* panel,
                                  std::int64_t column, int t) {
  if (!l.scaled) return _mm512_set1_ps(1);
  const bool one = l.scale_n != 1;
  const std::byte* from = panel + l.scales_at + column * l.scale_bytes;
  return scales_of_16(l.scale_dtype, from + (one ? 0 : t * l.scale_bytes / 2), one);
}

/// What all forms of codes share: a block's place, and the column of its scales.
class CodesPlace {
 public:
  CodesPlace(const WeightLayout& l, const std::byte* panel) : layout(l), panel(panel) {}

  /// Whether other scales hold from here on.
  [[gnu::always_inline]] bool go(std::int64_t block) {
    codes = panel + block * layout.block_bytes;
    const std::int64_t next = layout.scaled ? block * WeightLayout::kBlock / layout.scale_k : 0;
    if (next == column) return false;
    column = next;
    return true;
  }
  [[gnu::always_inline]] __m512 scales(int t) const {
    return block_scales(layout, panel, column, t);
  }

  const WeightLayout& layout;
  const std::byte *panel, *codes = nullptr;
  std::int64_t column = -1;
};

struct TwoPairs {
  __m512i first, last;
  [[gnu::always_inline]] PackedPair pair(int j) const { return {(I32)(j == 0 ? first : last)}; }
};

/// FP8, one scale for all of a block.
class Fp8Blocks {
 public:
  static constexpr int kPairs = 2;

  Fp8Blocks(const WeightLayout& l, const std::byte* panel) : at_(l, panel) {}

  [[gnu::always_inline]] void go(std::int64_t block) {
    if (at_.go(block)) table_ = Fp8Table(at_.scales(0));
  }
  [[gnu::always_inline]] TwoPairs step(int v, int i) const {
    TwoPairs two;
    table_.look_up(_mm512_load_si512(at_.codes + v * 512 + i * 64), two.first, two.last);
    return two;
  }

 private:
  CodesPlace at_;
  Fp8Table table_{_mm512_set1_ps(1)};
};

/// FP8, a scale for each output.
class Fp8Rows {
 public:
  static constexpr int kPairs = 2;

  Fp8Rows(const WeightLayout& l, const std::byte* panel) : at_(l, panel) {}

  [[gnu::always_inline]] void go(std::int64_t block) {
    if (!at_.go(block)) return;
    for (int t = 0; t < 2; ++t) scale_[t] = at_.scales(t);
  }
  [[gnu::always_inline]] TwoPairs step(int v, int i) const {
    TwoPairs two;
    plain_.look_up(_mm512_load_si512(at_.codes + v * 512 + i * 64), two.first, two.last);
    return {scaled_pairs(two.first, scale_[v]), scaled_pairs(two.last, scale_[v])};
  }

 private:
  CodesPlace at_;
  const Fp8Table plain_{_mm512_set1_ps(1)};
  __m512 scale_[2];
};

/// Four bits less a zero. Of 8 outputs, the even and the odd k lie side by side, and so do what
/// they mean: two vectors of float32, rounded into one, are a pair of k of 16 outputs.
///
/// A code at bit p of a float32's fraction is 2^(23 - p) + code under the right exponent, so that
/// three codes of a dword are had without moving it. kExact: scales of 11 bits, such as bf16 and
/// float16, times (2^(23 - p) + zero) are exact, and so one fma is (code - zero) scale.
template <bool kExact>
class Int4 {
 public:
  static constexpr int kPairs = 8;

  Int4(const WeightLayout& l, const std::byte* panel) : at_(l, panel) {}

  [[gnu::always_inline]] void go(std::int64_t block) {
    if (!at_.go(block)) return;
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    for (int t = 0; t < 2; ++t) {
      const __m512 scale = at_.scales(t);
      scale_[t][0] = _mm512_permutexvar_ps(twice, scale);
      scale_[t][1] = _mm512_permutexvar_ps(_mm512_add_epi32(twice, _mm512_set1_epi32(8)), scale);
      for (int h = 0; h < 2; ++h) {
        const __m512 zero = zeros(t * 8 + h * 4);
        for (int p = 0; p < 3; ++p) {
          const __m512 base = _mm512_add_ps(_mm512_set1_ps(kBases[p]), zero);
          base_[t][h][p] = kExact ? _mm512_mul_ps(base, scale_[t][h]) : base;
        }
      }
    }
  }

  struct Step {
    const Int4& form;
    int t;
    __m512i codes[2];  ///< of 8 outputs each

    [[gnu::always_inline]] PackedPair pair(int j) const {
      return {(I32)words(value(0, j), value(1, j))};
    }
    /// Codes 0, 1 | 2, 3, 4 | 5, 6, 7 turned to the places 0, 1 | 0, 1, 2 | 0, 1, 2.
    [[gnu::always_inline]] __m512 value(int h, int j) const {
      const int place = j < 2 ? j : (j + 1) % 3;
      const __m512i turned = j < 2   ? _mm512_rol_epi32(codes[h], 11)
                             : j < 5 ? _mm512_rol_epi32(codes[h], 3)
                                     : _mm512_ror_epi32(codes[h], 9);
      const __m512i mask = _mm512_set1_epi32(15 << (11 + 4 * place));
      const auto base = reinterpret_cast<__m512i>(_mm512_set1_ps(kBases[place]));
      const __m512 x = _mm512_castsi512_ps(
          _mm512_ternarylogic_epi32(turned, mask, base, 0xea));  // (turned & mask) | base
      const __m512 scale = form.scale_[t][h], less = form.base_[t][h][place];
      if constexpr (kExact) return _mm512_fmsub_ps(x, scale, less);
      return _mm512_mul_ps(_mm512_sub_ps(x, less), scale);
    }
  };

  [[gnu::always_inline]] Step step(int v, int i) const {
    const std::byte* from = at_.codes + v * 256 + i * 128;
    return {*this, v, {_mm512_load_si512(from), _mm512_load_si512(from + 64)}};
  }

 private:
  /// 2^(23 - p) of the places 11, 15 and 19.
  static constexpr float kBases[3] = {4096, 256, 16};

  /// In the lanes of 8 outputs, whose zeros begin `at` bytes on.
  [[gnu::always_inline]] __m512 zeros(int at) const {
    if (!at_.layout.zeros) return _mm512_set1_ps(8);
    std::int32_t nibbles;
    std::memcpy(&nibbles, at_.panel + at_.layout.zeros_at + at_.column * 16 + at, sizeof nibbles);
    const __m512i shifts =
        _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    return _mm512_cvtepi32_ps(_mm512_and_si512(
        _mm512_srlv_epi32(_mm512_set1_epi32(nibbles), shifts), _mm512_set1_epi32(15)));
  }

  CodesPlace at_;
  __m512 scale_[2][2];
  __m512 base_[2][2][3];  ///< what stands for zero; kExact: times the scale
};

/// The same of a matrix that was turned: a scale, and a zero, for each k.
template <bool kZeros>
class Int4Turned {
 public:
  static constexpr int kPairs = 8;

  Int4Turned(const WeightLayout& l, const std::byte* panel)
      : layout_(l), panel_(panel), meaning_(_mm512_load_ps(kCodes.int4)) {}

  [[gnu::always_inline]] void go(std::int64_t block) {
    codes_ = panel_ + block * layout_.block_bytes;
    const std::int64_t first = block * WeightLayout::kBlock;
    const std::byte* from = panel_ + layout_.scales_at + first * layout_.scale_bytes;
    for (int i = 0; i < 32; i += 16)
      _mm512_store_ps(scale_ + i, scales_of_16(layout_.scale_dtype,
                                               from + i * layout_.scale_bytes, false));
    for (int i = 0; kZeros && i < 32; ++i) {
      const std::byte zero = panel_[layout_.zeros_at + (first + i) * 16] & std::byte{15};
      more_[i] = 8 - static_cast<float>(zero);
    }
  }

  struct Step {
    const Int4Turned& form;
    __m512i codes[2];  ///< of 8 outputs each
    int first;         ///< k of the block

    [[gnu::always_inline]] PackedPair pair(int j) const {
      const __m512 scale = both(form.scale_ + first + 2 * j);
      return {(I32)words(_mm512_mul_ps(meaning(0, j), scale),
                         _mm512_mul_ps(meaning(1, j), scale))};
    }
    [[gnu::always_inline]] __m512 meaning(int h, int j) const {
      const __m512 x = _mm512_permutexvar_ps(_mm512_srli_epi32(codes[h], j * 4), form.meaning_);
      return kZeros ? _mm512_add_ps(x, both(form.more_ + first + 2 * j)) : x;
    }
    /// Of an even k and the odd one behind it, in turns.
    [[gnu::always_inline]] static __m512 both(const float* from) {
      double two;
      std::memcpy(&two, from, sizeof two);
      return _mm512_castpd_ps(_mm512_set1_pd(two));
    }
  };

  [[gnu::always_inline]] Step step(int v, int i) const {
    const std::byte* from = codes_ + v * 256 + i * 128;
    return {*this, {_mm512_load_si512(from), _mm512_load_si512(from + 64)}, 16 * i};
  }

 private:
  const WeightLayout& layout_;
  const std::byte *panel_, *codes_ = nullptr;
  const __m512 meaning_;
  alignas(64) float scale_[32];
  float more_[32];  ///< than the meaning, whose zero is 8
};

/// e2m1. A power of two times it is exact; kRounds: for other scales.
template <bool kRounds>
class Fp4 {
 public:
  static constexpr int kPairs = 4;

  Fp4(const WeightLayout& l, const std::byte* panel) : at_(l, panel) {}

  [[gnu::always_inline]] void go(std::int64_t block) {
    if (!at_.go(block)) return;
    for (int t = 0; t < 2; ++t) scale_[t] = at_.scales(t);
  }

  struct Step {
    __m512i codes;  ///< eight k of each output
    __m512 meaning, scale;

    [[gnu::always_inline]] auto pair(int j) const {
      if constexpr (kRounds)
        return PackedPair{(I32)_mm512_permutexvar_epi16(_mm512_load_si512(kCodes.pairs),
                                                        words(value(2 * j), value(2 * j + 1)))};
      else
        return ExactPair{value(2 * j), value(2 * j + 1)};
    }
    [[gnu::always_inline]] __m512 value(int i) const {
      return _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(codes, i * 4), meaning), scale);
    }
  };

  [[gnu::always_inline]] Step step(int v, int i) const {
    return {_mm512_load_si512(at_.codes + v * 256 + i * 64), meaning_, scale_[v]};
  }

 private:
  CodesPlace at_;
  const __m512 meaning_ = _mm512_load_ps(kCodes.fp4);
  __m512 scale_[2];
};

/// As few rows multiply codes as they are expanded; more are better off with tiles, since what it
/// takes to expand and the rows' sums compete for registers.
TROUPE_INLINE std::int64_t code_rows(const WeightLayout& l) {
  if (l.codes == Codes::kInt4 || l.turned()) return 2;
  return l.codes == Codes::kFp8 && l.scaled && l.scale_n == 1 ? 1 : 4;
}

template <class Body>
TROUPE_INLINE void with_codes(const WeightLayout& l, const std::byte* panel, const Body& body) {
  const auto as = [&](auto&& form) { body(form); };
  if (l.turned() && l.codes == Codes::kFp8)
    as(Turned<Fp8Blocks, rounded_pair>(l, panel));
  else if (l.turned())
    l.zeros ? as(Int4Turned<true>(l, panel)) : as(Int4Turned<false>(l, panel));
  else if (l.codes == Codes::kInt4)
    l.scale_dtype == DType::kF32 && l.scaled ? as(Int4<false>(l, panel))
                                             : as(Int4<true>(l, panel));
  else if (l.codes == Codes::kFp4)
    l.scale_dtype == DType::kF8E8M0 ? as(Fp4<false>(l, panel)) : as(Fp4<true>(l, panel));
  else
    l.scaled && l.scale_n == 1 ? as(Fp8Rows(l, panel)) : as(Fp8Blocks(l, panel));
}

}  // namespace
}  // namespace troupe::kernels::cpu
