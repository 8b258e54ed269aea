#pragma once

// After a family's simd.h and its form of codes.

#include "kernels/cpu/inner/products_tiles.h"

namespace troupe::kernels::cpu {
namespace {

/// What kernels of vectors share: weights are multiplied as tiles, or as codes while they are read,
/// some rows at a time. `Family` has rows<R>(form, block, stretch, first): R of them, from `first`.
template <class Family>
struct VectorKernel {
  static std::int64_t code_rows(const WeightLayout& l) { return cpu::code_rows(l); }
  static bool held(const WeightLayout& l) { return l.codes == Codes::kBf16; }

  static void expand(const WeightLayout& l, const std::byte* panel, std::int64_t block,
                     std::int64_t count, std::byte* out) {
    with_codes(l, panel, [&](auto& codes) { expand_codes(codes, l, panel, block, count, out); });
  }

  static void multiply(const Stretch& s) {
    Bf16Tiles tiles(s.w);
    multiply<Family::kRowsAtOnce>(tiles, 0, s);
  }

  static void multiply_codes(const WeightLayout& l, const std::byte* panel, std::int64_t block,
                             const Stretch& s) {
    with_codes(l, panel, [&](auto& codes) { multiply<Family::kCodeRows>(codes, block, s); });
  }

 private:
  template <int R, class Form>
  static void some_rows(Form& w, std::int64_t block, const Stretch& s, std::int64_t first,
                        std::int64_t count) {
    if (count == R) return Family::template rows<R>(w, block, s, first);
    if constexpr (R > 1) some_rows<R - 1>(w, block, s, first, count);
  }

  template <int kMost, class Form>
  static void multiply(Form& w, std::int64_t block, const Stretch& s) {
    const std::int64_t times = (s.rows + kMost - 1) / kMost;
    for (std::int64_t i = 0; i < times; ++i) {
      const std::int64_t first = s.rows * i / times;
      some_rows<kMost>(w, block, s, first, s.rows * (i + 1) / times - first);
    }
  }
};

}  // namespace
}  // namespace troupe::kernels::cpu
