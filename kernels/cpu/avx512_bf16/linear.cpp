#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/linear_slice.h"

namespace troupe::kernels::cpu {
namespace {

constexpr int kRowsMax = 12;  // 24 sums, 2 weights and a pair of x in 32 registers

/// A pair of k by 32 outputs is two registers; each is multiplied by the pair of every row.
template <int R>
void block(const LinearSlice& s, std::size_t row) {
  const char* x = static_cast<const char*>(s.x) + row * s.x_stride;
  const auto* w = static_cast<const __m512i*>(s.weights);
  __m512 sum[R][2];
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const std::int64_t pairs = (s.k + 1) / 2;
#pragma GCC unroll 2
  for (std::int64_t i = 0; i < pairs; ++i) {
    const auto w0 = reinterpret_cast<__m512bh>(_mm512_load_si512(w + 2 * i));
    const auto w1 = reinterpret_cast<__m512bh>(_mm512_load_si512(w + 2 * i + 1));
    for (int r = 0; r < R; ++r) {
      int pair;
      std::memcpy(&pair, x + static_cast<std::size_t>(r) * s.x_stride + 4 * i, sizeof pair);
      const auto both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], both, w0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], both, w1);
    }
  }
  for (int r = 0; r < R; ++r) {
    float* y = s.y + (row + static_cast<std::size_t>(r)) * s.y_stride;
    _mm512_storeu_ps(y, sum[r][0]);
    _mm512_storeu_ps(y + 16, sum[r][1]);
  }
}

/// The i-th piece by itself.
LinearSlice piece(const LinearSlice& all, std::int64_t i) {
  LinearSlice s = all;
  const auto n = static_cast<std::size_t>(i);
  s.weights = static_cast<const char*>(all.weights) + n * all.weights_step;
  s.x = static_cast<const char*>(all.x) + n * all.x_step;
  s.y = all.y + n * all.y_step;
  return s;
}

/// One row by two pieces: four sums hide more of an addition's latency than two.
void two_pieces(const LinearSlice& a, const LinearSlice& b) {
  const auto* wa = static_cast<const __m512i*>(a.weights);
  const auto* wb = static_cast<const __m512i*>(b.weights);
  __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                   _mm512_setzero_ps()};
  const std::int64_t pairs = (a.k + 1) / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    int pair_a, pair_b;
    std::memcpy(&pair_a, static_cast<const char*>(a.x) + 4 * i, sizeof pair_a);
    std::memcpy(&pair_b, static_cast<const char*>(b.x) + 4 * i, sizeof pair_b);
    const auto xa = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair_a));
    const auto xb = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair_b));
    const auto wa0 = reinterpret_cast<__m512bh>(_mm512_load_si512(wa + 2 * i));
    const auto wa1 = reinterpret_cast<__m512bh>(_mm512_load_si512(wa + 2 * i + 1));
    const auto wb0 = reinterpret_cast<__m512bh>(_mm512_load_si512(wb + 2 * i));
    const auto wb1 = reinterpret_cast<__m512bh>(_mm512_load_si512(wb + 2 * i + 1));
    sum[0] = _mm512_dpbf16_ps(sum[0], xa, wa0);
    sum[1] = _mm512_dpbf16_ps(sum[1], xa, wa1);
    sum[2] = _mm512_dpbf16_ps(sum[2], xb, wb0);
    sum[3] = _mm512_dpbf16_ps(sum[3], xb, wb1);
  }
  _mm512_storeu_ps(a.y, sum[0]);
  _mm512_storeu_ps(a.y + 16, sum[1]);
  _mm512_storeu_ps(b.y, sum[2]);
  _mm512_storeu_ps(b.y + 16, sum[3]);
}

}  // namespace

void linear_slice_avx512_bf16(const LinearSlice& all) {
  using Block = void (*)(const LinearSlice&, std::size_t);
  static constexpr Block kBlocks[kRowsMax + 1] = {
      nullptr,  block<1>, block<2>, block<3>,  block<4>,  block<5>, block<6>,
      block<7>, block<8>, block<9>, block<10>, block<11>, block<12>};
  std::int64_t i = 0;
  if (all.rows == 1)
    for (; i + 2 <= all.pieces; i += 2) two_pieces(piece(all, i), piece(all, i + 1));
  for (; i < all.pieces; ++i) {
    const LinearSlice s = piece(all, i);
    std::size_t row = 0;
    for (; row + kRowsMax <= s.rows; row += kRowsMax) block<kRowsMax>(s, row);
    if (row < s.rows) kBlocks[s.rows - row](s, row);
  }
}

void round_slice_avx512_bf16(const float* x, std::int64_t k, std::int64_t k_padded,
                             std::uint16_t* out) {
  for (std::int64_t i = 0; i < k_padded; i += 16) {
    const std::int64_t left = k - i;
    const __mmask16 mask = left >= 16  ? __mmask16{0xffff}
                           : left <= 0 ? __mmask16{0}
                                       : static_cast<__mmask16>((1u << left) - 1);
    const __m256bh half = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), reinterpret_cast<__m256i>(half));
  }
}

}  // namespace troupe::kernels::cpu
