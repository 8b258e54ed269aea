#include <immintrin.h>

#include "kernels/cpu/linear_slice.h"

namespace troupe::kernels::cpu {
namespace {

const float* x_row(const LinearSlice& s, std::size_t r) {
  return reinterpret_cast<const float*>(static_cast<const char*>(s.x) + r * s.x_stride);
}

/// R rows by V * 8 outputs from `column` on, weights as pairs of bf16.
template <int R, int V>
void pairs_block(const LinearSlice& s, std::size_t row, int column) {
  const float* x[R];
  for (int r = 0; r < R; ++r) x[r] = x_row(s, row + static_cast<std::size_t>(r));
  const auto* w = static_cast<const std::uint32_t*>(s.weights) + column;
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  __m256 sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sum[r][v] = _mm256_setzero_ps();
  const std::int64_t even_k = s.k / 2 * 2;
  for (std::int64_t k = 0; k < even_k; k += 2, w += 32) {
    for (int v = 0; v < V; ++v) {
      const __m256i pair = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + v * 8));
      const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
      const __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(pair, upper));
      for (int r = 0; r < R; ++r) {
        sum[r][v] = _mm256_fmadd_ps(_mm256_broadcast_ss(x[r] + k), even, sum[r][v]);
        sum[r][v] = _mm256_fmadd_ps(_mm256_broadcast_ss(x[r] + k + 1), odd, sum[r][v]);
      }
    }
  }
  if (even_k < s.k) {
    for (int v = 0; v < V; ++v) {
      const __m256i pair = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + v * 8));
      const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
      for (int r = 0; r < R; ++r)
        sum[r][v] = _mm256_fmadd_ps(_mm256_broadcast_ss(x[r] + even_k), even, sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      _mm256_storeu_ps(s.y + (row + static_cast<std::size_t>(r)) * s.y_stride + column + v * 8,
                       sum[r][v]);
}

/// The same with float32 weights.
template <int R, int V>
void f32_block(const LinearSlice& s, std::size_t row, int column) {
  const float* x[R];
  for (int r = 0; r < R; ++r) x[r] = x_row(s, row + static_cast<std::size_t>(r));
  const auto* w = static_cast<const float*>(s.weights) + column;
  __m256 sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sum[r][v] = _mm256_setzero_ps();
  for (std::int64_t k = 0; k < s.k; ++k, w += 32) {
    for (int v = 0; v < V; ++v) {
      const __m256 weight = _mm256_load_ps(w + v * 8);
      for (int r = 0; r < R; ++r)
        sum[r][v] = _mm256_fmadd_ps(_mm256_broadcast_ss(x[r] + k), weight, sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      _mm256_storeu_ps(s.y + (row + static_cast<std::size_t>(r)) * s.y_stride + column + v * 8,
                       sum[r][v]);
}

/// One or two rows take all 32 outputs at once, four take them in halves: up to 8 sums.
template <int R>
void rows(const LinearSlice& s, std::size_t row) {
  constexpr int kVectors = R <= 2 ? 4 : 2;
  for (int column = 0; column < 32; column += kVectors * 8)
    s.bf16_pairs ? pairs_block<R, kVectors>(s, row, column)
                 : f32_block<R, kVectors>(s, row, column);
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

}  // namespace

void linear_slice_avx2(const LinearSlice& all) {
  for (std::int64_t i = 0; i < all.pieces; ++i) {
    const LinearSlice s = piece(all, i);
    std::size_t row = 0;
    for (; row + 4 <= s.rows; row += 4) rows<4>(s, row);
    if (s.rows - row >= 2) {
      rows<2>(s, row);
      row += 2;
    }
    if (row < s.rows) rows<1>(s, row);
  }
}

}  // namespace troupe::kernels::cpu
