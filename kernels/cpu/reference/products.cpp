#include "kernels/cpu/products.h"

#include <cstring>

#include "kernels/cpu/inner/products.h"

namespace troupe::kernels::cpu {
namespace {

// Four lanes of plain instructions that every x86-64 has; a lane is one output.
using F4 = float __attribute__((vector_size(16)));

/// Tiles are float32, [32 k][16 outputs].
struct Kernel {
  static constexpr std::int64_t kElementBytes = 4;
  static constexpr std::int64_t kRowsAtOnce = 4;
  static constexpr std::int64_t kRowsInOrder = 0;
  static constexpr std::int64_t kCodeRows = 0;

  static bool held(const WeightLayout& l) { return l.codes == Codes::kF32; }

  static std::uint32_t code(std::byte two, std::int64_t i) {
    return static_cast<std::uint32_t>(two) >> (i * 4) & 15;
  }
  /// The i-th k of a block and output, less the zero.
  static float element(const WeightLayout& l, const std::byte* tile, std::int64_t i,
                       std::int64_t output, float zero) {
    switch (l.codes) {
      case Codes::kBf16:
        return number_at(tile + i / 2 * 64, DType::kBf16, output * 2 + i % 2);
      case Codes::kFp8:
        return e4m3_to_float(static_cast<std::uint8_t>(
            tile[i / 4 * 64 + output / 4 * 16 + i % 4 / 2 * 8 + output % 4 * 2 + i % 2]));
      default: break;
    }
    if (l.codes == Codes::kFp4)
      return fp4_value(code(tile[i / 8 * 64 + output * 4 + i % 8 / 2], i % 2));
    const std::int64_t at = i / 16 * 128 + output * 8 + i % 2 * 4 + i % 16 / 4;
    return static_cast<float>(code(tile[at], i / 2 % 2)) - zero;
  }

  /// What codes of k and output are scaled with.
  static void scaling(const WeightLayout& l, const std::byte* panel, std::int64_t k,
                      std::int64_t o, float& scale, float& zero) {
    if (!l.scaled) return;
    const std::int64_t column = k / l.scale_k;
    scale = number_at(panel + l.scales_at + column * l.scale_bytes, l.scale_dtype,
                      l.scale_n == 1 ? o : 0);
    if (l.zeros)
      zero = static_cast<float>(
          static_cast<int>(panel[l.zeros_at + column * 16 + o / 2]) >> (o % 2 * 4) & 15);
  }

  static void expand(const WeightLayout& l, const std::byte* panel, std::int64_t block,
                     std::int64_t count, std::byte* out) {
    auto* to = reinterpret_cast<float*>(out);
    for (std::int64_t b = block; b < block + count; ++b, to += 1024) {
      for (std::int64_t o = 0; o < WeightLayout::kOutputs; ++o) {
        const std::byte* tile = panel + b * l.block_bytes + o / 16 * (l.block_bytes / 2);
        float scale = 1, zero = 8;
        for (std::int64_t i = 0; i < 32; ++i) {
          if (i == 0 || l.turned()) scaling(l, panel, b * WeightLayout::kBlock + i, o, scale, zero);
          to[o / 16 * 512 + i * 16 + o % 16] = element(l, tile, i, o % 16, zero) * scale;
        }
      }
    }
  }

  /// k ascending, a multiplication and an addition each.
  template <int R>
  static void rows(const Stretch& s, std::int64_t first) {
    for (std::int64_t column = 0; column < 32; column += 8) {
      const float* x[R];
      F4 sum[R][2] = {};
      for (int r = 0; r < R; ++r) {
        x[r] = reinterpret_cast<const float*>(s.x + (first + r) * s.x_bytes);
        if (!s.begin) std::memcpy(sum[r], s.c + (first + r) * 32 + column, sizeof sum[r]);
      }
      const auto* w = reinterpret_cast<const float*>(s.w) + column / 16 * 512 + column % 16;
      for (std::int64_t b = 0; b < s.blocks; ++b)
        for (std::int64_t k = 0; k < 32; ++k) {
          F4 weight[2];
          std::memcpy(weight, w + b * 1024 + k * 16, sizeof weight);
          for (int r = 0; r < R; ++r) {
            sum[r][0] += x[r][b * 32 + k] * weight[0];
            sum[r][1] += x[r][b * 32 + k] * weight[1];
          }
        }
      for (int r = 0; r < R; ++r)
        std::memcpy(s.c + (first + r) * 32 + column, sum[r], sizeof sum[r]);
    }
  }

  static void multiply(const Stretch& s) {
    std::int64_t r = 0;
    for (; r + 4 <= s.rows; r += 4) rows<4>(s, r);
    for (; r < s.rows; ++r) rows<1>(s, r);
  }
};

void run(const ProductJob& job) {
  Kernel kernel;
  ProductPass<Kernel>(job, kernel).run();
}

void put(const void* x, bool bf16, std::int64_t count, std::byte* out, std::int64_t) {
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = reinterpret_cast<float*>(out);
  for (std::int64_t i = 0; i < count; ++i) to[i] = load_element(from, bf16, i);
}

constexpr ProductKernels kKernels = {run, put, 4, false};

}  // namespace

const ProductKernels& products_reference() { return kKernels; }

}  // namespace troupe::kernels::cpu
