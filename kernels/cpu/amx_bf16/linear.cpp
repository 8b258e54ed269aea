#include <immintrin.h>

#include "kernels/cpu/linear_slice.h"

namespace troupe::kernels::cpu {
namespace {

// Above 16 rows, tiles 0..3 hold sums (two blocks of 16 rows by two of 16 outputs), 4 and 5 the
// rows, 6 and 7 the weights. Up to 16 rows, two pieces run side by side: tiles 0..3 are their sums,
// 4 the rows, 5..7 the weights. A product takes as many cycles as it has rows, so tiles are as high
// as there are rows.
constexpr std::size_t kTileRows = 16;

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// No second rows: the layout of up to 16 rows.
void configure(std::size_t first_rows, std::size_t second_rows) {
  TileConfig c;
  for (int t = 0; t < 8; ++t) c.row_bytes[t] = 64;
  c.rows[0] = c.rows[1] = c.rows[4] = static_cast<std::uint8_t>(first_rows);
  const bool two = second_rows > 0;
  c.rows[2] = c.rows[3] = static_cast<std::uint8_t>(two ? second_rows : first_rows);
  c.rows[5] = static_cast<std::uint8_t>(two ? second_rows : 16);
  c.rows[6] = c.rows[7] = 16;
  _tile_loadconfig(&c);
}

/// 17 to 32 rows.
void two_blocks(const LinearSlice& s, std::size_t row) {
  const char* a0 = static_cast<const char*>(s.x) + row * s.x_stride;
  const char* a1 = a0 + kTileRows * s.x_stride;
  const char* w = static_cast<const char*>(s.weights);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t k = 0; k < s.k_padded; k += 32, a0 += 64, a1 += 64, w += 2048) {
    _tile_loadd(4, a0, s.x_stride);
    _tile_loadd(6, w, 128);
    _tile_loadd(7, w + 64, 128);
    _tile_loadd(5, a1, s.x_stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  float* y = s.y + row * s.y_stride;
  const std::size_t stride = s.y_stride * sizeof(float);
  _tile_stored(0, y, stride);
  _tile_stored(1, y + 16, stride);
  _tile_stored(2, y + kTileRows * s.y_stride, stride);
  _tile_stored(3, y + kTileRows * s.y_stride + 16, stride);
}

/// Up to 16 rows.
void one_block(const LinearSlice& s, std::size_t row) {
  const char* a = static_cast<const char*>(s.x) + row * s.x_stride;
  const char* w = static_cast<const char*>(s.weights);
  _tile_zero(0);
  _tile_zero(1);
  for (std::int64_t k = 0; k < s.k_padded; k += 32, a += 64, w += 2048) {
    _tile_loadd(4, a, s.x_stride);
    _tile_loadd(6, w, 128);
    _tile_loadd(7, w + 64, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  float* y = s.y + row * s.y_stride;
  const std::size_t stride = s.y_stride * sizeof(float);
  _tile_stored(0, y, stride);
  _tile_stored(1, y + 16, stride);
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

/// Up to 16 rows by two pieces: twice the sums hide more of a product's latency.
void two_pieces(const LinearSlice& s, const LinearSlice& t) {
  const char* a = static_cast<const char*>(s.x);
  const char* b = static_cast<const char*>(t.x);
  const char* v = static_cast<const char*>(s.weights);
  const char* w = static_cast<const char*>(t.weights);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t k = 0; k < s.k_padded; k += 32, a += 64, b += 64, v += 2048, w += 2048) {
    _tile_loadd(4, a, s.x_stride);
    _tile_loadd(5, v, 128);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, v + 64, 128);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(4, b, t.x_stride);
    _tile_loadd(7, w, 128);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, w + 64, 128);
    _tile_dpbf16ps(3, 4, 5);
  }
  const std::size_t stride = s.y_stride * sizeof(float);
  _tile_stored(0, s.y, stride);
  _tile_stored(1, s.y + 16, stride);
  _tile_stored(2, t.y, stride);
  _tile_stored(3, t.y + 16, stride);
}

/// Loading a configuration takes as long as a small product, so pieces share it.
struct Shape {
  std::size_t first_rows = 0, second_rows = 0;

  void become(std::size_t first, std::size_t second) {
    if (first == first_rows && second == second_rows) return;
    first_rows = first;
    second_rows = second;
    configure(first, second);
  }
};

}  // namespace

void linear_slice_amx_bf16(const LinearSlice& all) {
  Shape shape;
  std::int64_t i = 0;
  if (all.rows <= kTileRows) {
    shape.become(all.rows, 0);
    for (; i + 2 <= all.pieces; i += 2) two_pieces(piece(all, i), piece(all, i + 1));
  }
  for (; i < all.pieces; ++i) {
    const LinearSlice s = piece(all, i);
    std::size_t row = 0;
    for (; row + 2 * kTileRows <= s.rows; row += 2 * kTileRows) {
      shape.become(kTileRows, kTileRows);
      two_blocks(s, row);
    }
    const std::size_t left = s.rows - row;
    if (left > kTileRows) {
      shape.become(kTileRows, left - kTileRows);
      two_blocks(s, row);
    } else if (left > 0) {
      shape.become(left, 0);
      one_block(s, row);
    }
  }
  _tile_release();
}

}  // namespace troupe::kernels::cpu
