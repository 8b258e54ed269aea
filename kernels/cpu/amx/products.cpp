#include "kernels/cpu/products.h"

#ifdef __AVX512VBMI__
#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/inner/products_codes_avx512.h"
#else  // a test's: tiles in plain C++
#include "kernels/cpu/avx2/simd.h"
#include "kernels/cpu/inner/products_codes_avx2.h"
#endif

namespace troupe::kernels::cpu {
namespace {

constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kSumBytes = WeightLayout::kOutputs * 4;

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// Tiles 0 to 3 hold sums (up to two blocks of 16 rows by two of 16 outputs), 4 and 5 the rows, 6
/// and 7 the weights. A product takes as many cycles as it has rows, so tiles are as high as there
/// are rows.
class Kernel {
 public:
  static constexpr std::int64_t kElementBytes = 2;
  static constexpr std::int64_t kRowsAtOnce = 2 * kTileRows;
  static constexpr std::int64_t kRowsInOrder = 0;
  static constexpr std::int64_t kCodeRows = 0;

  ~Kernel() { _tile_release(); }

  static bool held(const WeightLayout& l) { return l.codes == Codes::kBf16; }
  static void expand(const WeightLayout& l, const std::byte* panel, std::int64_t block,
                     std::int64_t count, std::byte* out) {
    with_codes(l, panel, [&](auto& codes) { expand_codes(codes, l, panel, block, count, out); });
  }

  void multiply(const Stretch& s) {
    for (std::int64_t r = 0; r < s.rows; r += 2 * kTileRows) {
      const std::int64_t left = s.rows - r;
      const std::int64_t first = left < kTileRows ? left : kTileRows;
      const std::int64_t second = left - first < kTileRows ? left - first : kTileRows;
      become(first, second);
      second > 0 ? two_blocks(s, r) : one_block(s, r);
    }
  }

 private:
  /// Loading a configuration takes as long as a small product, so panels share it.
  void become(std::int64_t first, std::int64_t second) {
    if (first == first_ && second == second_) return;
    first_ = first;
    second_ = second;
    TileConfig c;
    for (int t = 0; t < 8; ++t) c.row_bytes[t] = 64;
    c.rows[0] = c.rows[1] = c.rows[4] = static_cast<std::uint8_t>(first);
    c.rows[2] = c.rows[3] = c.rows[5] = static_cast<std::uint8_t>(second > 0 ? second : first);
    c.rows[6] = c.rows[7] = 16;
    _tile_loadconfig(&c);
  }

  static void two_blocks(const Stretch& s, std::int64_t row) {
    const std::byte* a0 = s.x + row * s.x_bytes;
    const std::byte* a1 = a0 + kTileRows * s.x_bytes;
    const std::byte* w = s.w;
    float* c0 = s.c + row * WeightLayout::kOutputs;
    float* c1 = c0 + kTileRows * WeightLayout::kOutputs;
    if (s.begin) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    } else {
      _tile_loadd(0, c0, kSumBytes);
      _tile_loadd(1, c0 + 16, kSumBytes);
      _tile_loadd(2, c1, kSumBytes);
      _tile_loadd(3, c1 + 16, kSumBytes);
    }
    for (std::int64_t b = 0; b < s.blocks; ++b, a0 += 64, a1 += 64, w += 2048) {
      _tile_loadd(4, a0, s.x_bytes);
      _tile_loadd(6, w, 64);
      _tile_loadd(7, w + 1024, 64);
      _tile_loadd(5, a1, s.x_bytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c0, kSumBytes);
    _tile_stored(1, c0 + 16, kSumBytes);
    _tile_stored(2, c1, kSumBytes);
    _tile_stored(3, c1 + 16, kSumBytes);
  }

  /// Up to 16 rows: what is loaded of the weights is used once.
  static void one_block(const Stretch& s, std::int64_t row) {
    const std::byte* a = s.x + row * s.x_bytes;
    const std::byte* w = s.w;
    float* c = s.c + row * WeightLayout::kOutputs;
    if (s.begin) {
      _tile_zero(0);
      _tile_zero(1);
    } else {
      _tile_loadd(0, c, kSumBytes);
      _tile_loadd(1, c + 16, kSumBytes);
    }
    for (std::int64_t b = 0; b < s.blocks; ++b, a += 64, w += 2048) {
      if (row == 0) s.ask_ahead(b);
      _tile_loadd(4, a, s.x_bytes);
      _tile_stream_loadd(6, w, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_stream_loadd(7, w + 1024, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, c, kSumBytes);
    _tile_stored(1, c + 16, kSumBytes);
  }

  std::int64_t first_ = 0, second_ = 0;
};

void run(const ProductJob& job) {
  Kernel kernel;
  ProductPass<Kernel>(job, kernel).run();
}

constexpr ProductKernels kKernels = {run, put_pairs, 2, true};

}  // namespace

const ProductKernels& products_amx() { return kKernels; }

}  // namespace troupe::kernels::cpu
