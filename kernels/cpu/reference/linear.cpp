#include <cstring>

#include "kernels/cpu/linear_slice.h"

namespace troupe::kernels::cpu {
namespace {

// Four lanes of plain instructions that every x86-64 has; a lane is one output.
using F4 = float __attribute__((vector_size(16)));
using U4 = std::uint32_t __attribute__((vector_size(16)));
constexpr int kColumns = 8;  // outputs in registers at once

const float* x_row(const LinearSlice& s, std::size_t r) {
  return reinterpret_cast<const float*>(static_cast<const char*>(s.x) + r * s.x_stride);
}

template <int R>
void rows_pairs(const LinearSlice& s, std::size_t row, int column) {
  const float* x[R];
  for (int r = 0; r < R; ++r) x[r] = x_row(s, row + static_cast<std::size_t>(r));
  const auto* w = static_cast<const std::uint32_t*>(s.weights) + column;
  F4 sum[R][2] = {};
  for (std::int64_t k = 0; k < s.k; k += 2, w += 32) {
    const bool odd_too = k + 1 < s.k;
    for (int j = 0; j < 2; ++j) {
      U4 pair;
      std::memcpy(&pair, w + j * 4, sizeof pair);
      const F4 even = reinterpret_cast<F4>(pair << 16);
      const F4 odd = reinterpret_cast<F4>(pair & 0xffff0000u);
      for (int r = 0; r < R; ++r) {
        sum[r][j] += x[r][k] * even;
        if (odd_too) sum[r][j] += x[r][k + 1] * odd;
      }
    }
  }
  for (int r = 0; r < R; ++r)
    std::memcpy(s.y + (row + static_cast<std::size_t>(r)) * s.y_stride + column, sum[r],
                sizeof sum[r]);
}

template <int R>
void rows_f32(const LinearSlice& s, std::size_t row, int column) {
  const float* x[R];
  for (int r = 0; r < R; ++r) x[r] = x_row(s, row + static_cast<std::size_t>(r));
  const auto* w = static_cast<const float*>(s.weights) + column;
  F4 sum[R][2] = {};
  for (std::int64_t k = 0; k < s.k; ++k, w += 32) {
    for (int j = 0; j < 2; ++j) {
      F4 weight;
      std::memcpy(&weight, w + j * 4, sizeof weight);
      for (int r = 0; r < R; ++r) sum[r][j] += x[r][k] * weight;
    }
  }
  for (int r = 0; r < R; ++r)
    std::memcpy(s.y + (row + static_cast<std::size_t>(r)) * s.y_stride + column, sum[r],
                sizeof sum[r]);
}

template <int R>
void rows(const LinearSlice& s, std::size_t row) {
  for (int column = 0; column < 32; column += kColumns)
    s.bf16_pairs ? rows_pairs<R>(s, row, column) : rows_f32<R>(s, row, column);
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

void linear_slice_reference(const LinearSlice& all) {
  for (std::int64_t i = 0; i < all.pieces; ++i) {
    const LinearSlice s = piece(all, i);
    std::size_t row = 0;
    for (; row + 4 <= s.rows; row += 4) rows<4>(s, row);
    for (; row < s.rows; ++row) rows<1>(s, row);
  }
}

}  // namespace troupe::kernels::cpu
