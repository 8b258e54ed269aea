#include "kernels/cuda/product.h"
#include "kernels/cuda/product_output.h"
#include "kernels/cuda/sums.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {
namespace {

/// Weights one at a time, by the layout's words.
struct PlainWeights {
  const WeightLayout& l;
  const std::byte* panel;
  int output;

  DEVICE std::uint32_t byte(std::int64_t at) const { return static_cast<std::uint32_t>(panel[at]); }
  DEVICE float scaled(float code, std::int64_t k) const {
    if (!l.scaled) return code;
    const std::int64_t column = k / l.scale_k;
    return code * cpu::number_at(panel + l.scales_at + column * l.scale_bytes, l.scale_dtype,
                                 l.scale_n == 1 ? output : 0);
  }
  DEVICE float zero(std::int64_t k) const {
    if (!l.zeros) return 8.0f;
    const std::uint32_t two = byte(l.zeros_at + k / l.scale_k * 16 + output / 2);
    return static_cast<float>(two >> (output % 2 * 4) & 15u);
  }

  /// The k-th of a block, which counts from the part's first.
  DEVICE float operator()(int part, std::int64_t block, int k) const {
    const int tile = output / 16, lane = output % 16;
    const std::int64_t at = part * l.part_bytes + block * l.block_bytes + tile * l.block_bytes / 2;
    const std::int64_t whole_k = block * WeightLayout::kBlock + k;
    if (l.codes == Codes::kBf16) {
      const std::int64_t bytes = at + k / 2 * 64 + lane * 4 + k % 2 * 2;
      return to_float(Bf16{static_cast<std::uint16_t>(byte(bytes) | byte(bytes + 1) << 8)});
    }
    if (l.codes == Codes::kFp8) {
      const std::int64_t row = at + k / 4 * 64 + lane / 4 * 16;
      const std::uint32_t code = byte(row + k % 4 / 2 * 8 + lane % 4 * 2 + k % 2);
      return bf(scaled(e4m3_to_float(static_cast<std::uint8_t>(code)), whole_k));
    }
    if (l.codes == Codes::kInt4) {
      const std::uint32_t two = byte(at + k / 16 * 128 + lane * 8 + k % 2 * 4 + k % 16 / 4);
      const std::uint32_t code = two >> (k % 4 / 2 * 4) & 15u;
      return bf(scaled(static_cast<float>(code) - zero(whole_k), whole_k));
    }
    const std::uint32_t two = byte(at + k / 8 * 64 + lane * 4 + k % 8 / 2);
    return bf(scaled(fp4(two >> (k % 2 * 4) & 15u), whole_k));
  }

  DEVICE static float fp4(std::uint32_t code) {
    const std::uint32_t size = code & 7u;
    const float whole = static_cast<float>(size < 4   ? size
                                           : size < 6 ? 2 * size - 4
                                                      : 4 * size - 16);
    return (code & 8u) != 0 ? -0.5f * whole : 0.5f * whole;
  }
};

/// A CTA of 32 threads a panel, for one row after the other. Bytes: the panel again for each row
/// and term, one or two at a time. Operations, a weight and row: an fma, what makes a number of its
/// code, and a dozen of integers for where it lies. Bound by the latency of its loads; it is there
/// to be compared with.
struct PlainProduct {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = false;

  Products p;

  DEVICE void operator()(Cta& cta) const {
    if (!is_listed(p, cta.block_x())) return;
    const ProductItem item = item_of(p, cta.block_x());
    const PlainWeights w = {p.layout, item.panels + cta.block_y() * p.layout.panel_bytes,
                            cta.thread()};
    const std::int64_t output = cta.block_y() * WeightLayout::kOutputs + cta.thread();
    if (output >= p.layout.n) return;
    for (int row = 0; row < item.rows; ++row) {
      SliceTree tree;
      for (int slice = 0; slice < p.layout.slices; ++slice) {
        const std::byte* x = item.x + row * p.x_bytes;
        float sum = sum_slice(w, x, 0, slice);
        if (p.terms > 1) sum = sum + sum_slice(w, x + p.low_bytes, 0, slice);
        if (p.terms > 2) sum = sum + sum_slice(w, x, 1, slice);
        tree.add(sum);
      }
      put_output(p, item, row, output, tree.total());
    }
  }

  /// P of a slice.
  DEVICE float sum_slice(const PlainWeights& w, const std::byte* x, int part, int slice) const {
    float sum = 0;
    for (std::int64_t b = slice * p.layout.blocks; b < (slice + 1) * p.layout.blocks; ++b) {
      const auto* numbers = reinterpret_cast<const std::uint16_t*>(x) + b * WeightLayout::kBlock;
      float even = 0, odd = 0;
      for (int k = 0; k < WeightLayout::kBlock; k += 2) {
        even = fma_f32(to_float(Bf16{numbers[k]}), w(part, b, k), even);
        odd = fma_f32(to_float(Bf16{numbers[k + 1]}), w(part, b, k + 1), odd);
      }
      sum = sum + (even + odd);
    }
    return sum;
  }
};

}  // namespace

void plain_products(Stream& stream, const Products& products) {
  launch(stream, {products.count, products.layout.panels}, PlainProduct{products});
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
