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

/// Codes of a matrix that was turned: a scale for each k. `Plain` gives the codes' meanings, which
/// are bf16 exactly; kRound rounds two vectors of float32 to a pair.
template <class Plain, auto kRound>
class Turned {
 public:
  static constexpr int kPairs = Plain::kPairs;

  Turned(const WeightLayout& l, const std::byte* panel)
      : layout_(l), unscaled_(l), panel_(panel), plain_(unscaled_, panel) {
    unscaled_.scaled = unscaled_.zeros = false;
  }
  Turned(const Turned&) = delete;

  [[gnu::always_inline]] void go(std::int64_t block) {
    plain_.go(block);
    for (std::int64_t i = 0; i < WeightLayout::kBlock; ++i) {
      const std::int64_t k = block * WeightLayout::kBlock + i;
      scale_[i] = number_at(panel_ + layout_.scales_at, layout_.scale_dtype, k);
      if (layout_.zeros)
        more_[i] = 8 - static_cast<float>(panel_[layout_.zeros_at + k * 16] & std::byte{15});
    }
  }

  template <class PlainStep>
  struct Step {
    const Turned& form;
    PlainStep plain;
    int first;  ///< k of the block

    [[gnu::always_inline]] auto pair(int j) const {
      const auto meaning = plain.pair(j);
      const float* more = form.more_ + first + 2 * j;
      const float* scale = form.scale_ + first + 2 * j;
      return kRound((meaning.even() + all(more[0])) * all(scale[0]),
                    (meaning.odd() + all(more[1])) * all(scale[1]));
    }
  };

  [[gnu::always_inline]] auto step(int v, int i) const {
    using PlainStep = decltype(plain_.step(v, i));
    return Step<PlainStep>{*this, plain_.step(v, i), 2 * i * kPairs};
  }

 private:
  const WeightLayout& layout_;
  WeightLayout unscaled_;
  const std::byte* panel_;
  Plain plain_;
  float scale_[WeightLayout::kBlock];
  float more_[WeightLayout::kBlock] = {};  ///< than the meaning, whose zero is 8
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
