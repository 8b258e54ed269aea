#pragma once

// After a family's simd.h.

#include "kernels/cpu/inner/products.h"

/// Panels as vectors of weights. A panel's form has
///
///     kPairs        consecutive pairs of k that a step holds
///     go(block)     to a block of the panel
///     step(v, i)    its i-th step, of the v-th kLanes outputs; pair(j) of that is a pair of k
///
/// The forms of codes are a family's own: with_codes(layout, panel, body) calls body(form).
namespace troupe::kernels::cpu {
namespace {

/// Two k of kLanes outputs, both bf16 in a dword.
struct PackedPair {
  I32 both;

  [[gnu::always_inline]] F32 even() const { return (F32)(both << 16); }
  [[gnu::always_inline]] F32 odd() const { return (F32)(both & all(~0xffff)); }
  [[gnu::always_inline]] I32 packed() const { return both; }
};

/// The same, each in a vector of its own.
struct ExactPair {
  F32 first, last;

  [[gnu::always_inline]] F32 even() const { return first; }
  [[gnu::always_inline]] F32 odd() const { return last; }
  [[gnu::always_inline]] I32 packed() const {
    return ((I32)first >> 16 & all(0xffff)) | (I32)last;
  }
};

/// Tiles of bf16.
class Bf16Tiles {
 public:
  static constexpr int kPairs = 1;
  static constexpr std::int64_t kBytes = 2048;  ///< of a block

  explicit Bf16Tiles(const std::byte* tiles) : tiles_(tiles) {}

  struct Step {
    PackedPair all;
    [[gnu::always_inline]] PackedPair pair(int) const { return all; }
  };

  [[gnu::always_inline]] void go(std::int64_t block) { block_ = tiles_ + block * kBytes; }
  [[gnu::always_inline]] Step step(int v, int i) const {
    return {{load_dwords(block_ + at(v) + i * 64)}};
  }
  /// Where the v-th kLanes outputs begin in a block.
  static constexpr std::int64_t at(int v) { return v * kLanes / 16 * 1024 + v * kLanes % 16 * 4; }

 private:
  const std::byte *tiles_, *block_ = nullptr;
};

/// Blocks of one form as tiles of bf16, while what follows them is asked for.
template <class Codes>
void expand_codes(Codes& codes, const WeightLayout& l, const std::byte* panel, std::int64_t block,
                  std::int64_t count, std::byte* out) {
  for (std::int64_t b = block; b < block + count; ++b, out += Bf16Tiles::kBytes) {
    ask_for_next(l, panel, block, count, b - block);
    codes.go(b);
    for (int v = 0; v < 32 / kLanes; ++v)
      for (int i = 0; i < 16 / Codes::kPairs; ++i) {
        const auto step = codes.step(v, i);
        std::byte* to = out + Bf16Tiles::at(v) + i * Codes::kPairs * 64;
#pragma GCC unroll 8
        for (int j = 0; j < Codes::kPairs; ++j) save_dwords(to + j * 64, step.pair(j).packed());
      }
  }
}

}  // namespace
}  // namespace troupe::kernels::cpu
