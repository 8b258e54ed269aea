#include <immintrin.h>

#ifdef __AVX512F__
#include "kernels/cpu/avx512/simd.h"
#else  // a test's: tiles in plain C++
#include "kernels/cpu/avx2/simd.h"
#endif
#include "kernels/cpu/inner/lanes_math.h"
#include "kernels/cpu/inner/attention_panels.h"
#include "kernels/cpu/inner/attention_pairs.h"
#include "kernels/cpu/inner/attention.h"

namespace troupe::kernels {
namespace {

struct alignas(64) AttentionTiles {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// The two products of attention by tiles. Tile 0 and 1 hold sums, 2 a block of the rows, 3 and 4
/// of the panel; a product takes as many cycles as it has rows, so they are as high.
class TileProducts : public PairPanels {
 public:
  static constexpr int kRows = 16;
  static constexpr bool kOneChain = false;

  ~TileProducts() { _tile_release(); }

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
