#pragma once

#include <immintrin.h>

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>

/// AMX in plain C++, after the pseudo-code of Intel's manual, so that kernels that use it are
/// tested on every machine: include this before their file.
namespace troupe::amx_twin {

struct Tile {
  int rows = 0, row_bytes = 0;
  std::uint8_t bytes[16][64] = {};
};

struct Tiles {
  bool configured = false;
  Tile tile[8];
};
inline thread_local Tiles tiles;

inline void load_config(const void* config) {
  const auto* c = static_cast<const std::uint8_t*>(config);
  assert(c[0] == 1 && c[1] == 0);  // the palette and the first row
  tiles = {};
  tiles.configured = true;
  for (int t = 0; t < 8; ++t) {
    std::uint16_t row_bytes;
    std::memcpy(&row_bytes, c + 16 + 2 * t, sizeof row_bytes);
    tiles.tile[t].row_bytes = row_bytes;
    tiles.tile[t].rows = c[48 + t];
    assert(row_bytes <= 64 && tiles.tile[t].rows <= 16);
  }
}

inline Tile& configured(int t) {
  assert(tiles.configured && tiles.tile[t].rows > 0 && tiles.tile[t].row_bytes > 0);
  return tiles.tile[t];
}

inline void release() { tiles = {}; }

inline void zero(int t) { std::memset(configured(t).bytes, 0, sizeof tiles.tile[t].bytes); }

inline void load(int t, const void* from, std::int64_t stride) {
  zero(t);
  const Tile& tile = tiles.tile[t];
  for (int r = 0; r < tile.rows; ++r)
    std::memcpy(tiles.tile[t].bytes[r], static_cast<const char*>(from) + r * stride,
                static_cast<std::size_t>(tile.row_bytes));
}

inline void store(int t, void* to, std::int64_t stride) {
  const Tile& tile = configured(t);
  for (int r = 0; r < tile.rows; ++r)
    std::memcpy(static_cast<char*>(to) + r * stride, tile.bytes[r],
                static_cast<std::size_t>(tile.row_bytes));
}

inline float half(const Tile& tile, int row, int i) {
  std::uint32_t bits = 0;
  std::memcpy(reinterpret_cast<char*>(&bits) + 2, tile.bytes[row] + 2 * i, 2);
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// c += a b: in a row of a pairs of k, in b a row for each pair. Even k and odd k are summed apart.
inline void dot(int c, int a, int b) {
  Tile& sum = configured(c);
  const Tile &left = configured(a), &right = configured(b);
  assert(left.rows == sum.rows && right.row_bytes == sum.row_bytes);
  assert(left.row_bytes / 4 == right.rows);
  for (int m = 0; m < sum.rows; ++m)
    for (int n = 0; n < sum.row_bytes / 4; ++n) {
      float even = 0, odd = 0;
      for (int k = 0; k < left.row_bytes / 4; ++k) {
        even = std::fma(half(left, m, 2 * k), half(right, k, 2 * n), even);
        odd = std::fma(half(left, m, 2 * k + 1), half(right, k, 2 * n + 1), odd);
      }
      float before;
      std::memcpy(&before, sum.bytes[m] + 4 * n, sizeof before);
      const float after = before + (even + odd);
      std::memcpy(sum.bytes[m] + 4 * n, &after, sizeof after);
    }
}

}  // namespace troupe::amx_twin

#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_stored
#undef _tile_release
#define _tile_loadconfig(config) ::troupe::amx_twin::load_config(config)
#define _tile_loadd(t, from, stride) ::troupe::amx_twin::load(t, from, stride)
#define _tile_stream_loadd(t, from, stride) ::troupe::amx_twin::load(t, from, stride)
#define _tile_zero(t) ::troupe::amx_twin::zero(t)
#define _tile_dpbf16ps(c, a, b) ::troupe::amx_twin::dot(c, a, b)
#define _tile_stored(t, to, stride) ::troupe::amx_twin::store(t, to, stride)
#define _tile_release() ::troupe::amx_twin::release()
