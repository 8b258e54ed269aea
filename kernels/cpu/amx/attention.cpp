#include <immintrin.h>

#ifdef __AVX512F__
#include "kernels/cpu/avx512/simd.h"
#else  // a test's: tiles in plain C++
#include "kernels/cpu/avx2/simd.h"
#endif
#include "kernels/cpu/inner/lanes_math.h"
#include "kernels/cpu/inner/attention_panels.h"
#include "kernels/cpu/inner/attention.h"

namespace troupe::kernels {
namespace {

struct alignas(64) AttentionTiles {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// The two products of attention by tiles: rows of queries or weights are bf16 as they lie, panels
/// are pairs interleaved, [block][pair][kWidth][2]. Tile 0 and 1 hold sums, 2 a block of the rows,
/// 3 and 4 of the panel; a product takes as many cycles as it has rows, so they are as high.
class TileProducts {
 public:
  using Number = std::uint16_t;
  static constexpr int kRows = 16;
  static constexpr int kStretch = 192;
  static constexpr std::int64_t kPairBytes = kWidth * 4;

  ~TileProducts() { _tile_release(); }

  static std::int64_t query_bytes(std::int64_t k_dim) { return (k_dim + 31) / 32 * 32 * 2; }

  static void prepare(const float* q, std::int64_t k_dim, std::byte* prepared) {
    for (std::int64_t i = 0; i < query_bytes(k_dim) / 2; i += kLanes) {
      alignas(64) float x[kLanes] = {};
      for (int j = 0; j < kLanes && i + j < k_dim; ++j) x[j] = q[i + j];
      save_halves(prepared + i * 2, (I32)bf(load(x)) >> 16);
    }
  }

  static void key_panel(const std::byte* const* rows, const std::byte* const* values, DType dtype,
                        std::int64_t k_dim, std::int64_t k, std::int64_t count, std::byte* panel) {
    for (int half = 0; half < 2; ++half)
      for (std::int64_t at = 0; at < count; at += kWidth) {
        I32 pairs[kLanes];
        transposed_keys(rows + half * kLanes, values == nullptr ? nullptr : values + half * kLanes,
                        dtype, k_dim, k + at, pairs);
        for (int j = 0; j < kLanes; ++j)
          save_dwords(panel + (at / 2 + j) * kPairBytes + half * kLanes * 4, pairs[j]);
      }
  }

  static void value_panel(const std::byte* const* rows, const std::byte* const* next, DType dtype,
                          std::int64_t v_dim, std::int64_t at, std::int64_t count,
                          std::byte* panel) {
    with_numbers(dtype, v_dim, at, [&](const auto& numbers) {
      for (std::int64_t p = 0; p < count; p += 2) {
        for (std::int64_t i = p; i < p + 2; ++i) __builtin_prefetch(next[i] + numbers.bytes, 0, 2);
        const I32 even = numbers.of(rows[p]), odd = numbers.of(rows[p + 1]);
        std::byte* to = panel + p / 2 * kPairBytes;
        save_dwords(to, first_halves(even) | (first_halves(odd) << 16));
        save_dwords(to + kLanes * 4, last_halves(even) | (last_halves(odd) << 16));
      }
    });
  }

  /// In place: a weight is half as wide.
  static void keep_weights(float* weights, std::int64_t first, std::int64_t last) {
    auto* to = reinterpret_cast<std::byte*>(weights);
    for (std::int64_t p = first; p < last; p += kLanes)
      save_halves(to + p * 2, (I32)load(weights + p) >> 16);
  }

  void product(const std::byte* a, std::int64_t a_bytes, std::int64_t rows, const std::byte* panel,
               std::int64_t blocks, float* c, std::int64_t c_stride, bool more) {
    constexpr int kTiles = kWidth / 16;
    become(rows);
    if (more) {
      _tile_loadd(0, c, c_stride * 4);
      if constexpr (kTiles == 2) _tile_loadd(1, c + 16, c_stride * 4);
    } else {
      _tile_zero(0);
      _tile_zero(1);
    }
    for (std::int64_t b = 0; b < blocks; ++b, a += 64, panel += 16 * kPairBytes) {
      _tile_loadd(2, a, a_bytes);
      _tile_loadd(3, panel, kPairBytes);
      _tile_dpbf16ps(0, 2, 3);
      if constexpr (kTiles == 2) {
        _tile_loadd(4, panel + 64, kPairBytes);
        _tile_dpbf16ps(1, 2, 4);
      }
    }
    _tile_stored(0, c, c_stride * 4);
    if constexpr (kTiles == 2) _tile_stored(1, c + 16, c_stride * 4);
  }

 private:
  /// Loading a configuration takes as long as a small product.
  void become(std::int64_t rows) {
    if (rows == rows_) return;
    rows_ = rows;
    AttentionTiles config;
    for (int t = 0; t < 5; ++t) {
      config.row_bytes[t] = 64;
      config.rows[t] = t < 3 ? static_cast<std::uint8_t>(rows) : 16;
    }
    _tile_loadconfig(&config);
  }

  std::int64_t rows_ = 0;
};

}  // namespace

namespace cpu {
const AttentionKernel kAttentionAmx = {TileProducts::query_bytes, TileProducts::prepare,
                                       attention_tile<TileProducts>, fold_partial};
}  // namespace cpu

}  // namespace troupe::kernels
