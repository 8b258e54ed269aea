#pragma once

#include "kernels/cpu/weight_decode.h"
#include "kernels/cpu/weight_layout.h"
#include "kernels/cuda/math.h"

/// What the codes of a packed block mean (kernels/cpu/weight_layout.h). Here "four" are the outputs
/// 4 q .. 4 q + 3 of a panel, and pair j is k = 2 j and 2 j + 1 of a block.
namespace troupe::kernels::TROUPE_CUDA_SPACE {

/// Where a thread's sixteen bytes are: four q of the block that begins at `block`, whose tiles have
/// rows of 64 bytes.
template <int kRowsOfTile>
DEVICE const std::byte* four_at(const std::byte* block, int q, int row) {
  return block + (q / 4 * kRowsOfTile + row) * 64 + q % 4 * 16;
}

/// What four outputs of a block are scaled with. kTurned: a scale for each k.
template <bool kTurned>
class FourScales {
 public:
  /// `block` counts from the panel's first.
  DEVICE FourScales(const WeightLayout& l, const std::byte* panel, std::int64_t block, int q)
      : layout_(l), panel_(panel), first_k_(block * WeightLayout::kBlock), q_(q) {
    if constexpr (!kTurned) {
      const std::int64_t column = l.scaled ? first_k_ / l.scale_k : 0;
      for (int o = 0; o < 4; ++o) {
        scales_[o] = scale(column, o);
        zeros_[o] = zero(column, o);
      }
    }
  }
  DEVICE float scale_of(int k, int o) const {
    return kTurned ? scale(first_k_ + k, o) : scales_[o];
  }
  DEVICE float zero_of(int k, int o) const { return kTurned ? zero(first_k_ + k, o) : zeros_[o]; }

 private:
  DEVICE float scale(std::int64_t column, int o) const {
    if (!layout_.scaled) return 1.0f;
    return cpu::number_at(panel_ + layout_.scales_at + column * layout_.scale_bytes,
                          layout_.scale_dtype, layout_.scale_n == 1 ? 4 * q_ + o : 0);
  }
  DEVICE float zero(std::int64_t column, int o) const {
    if (!layout_.zeros) return 8.0f;
    const std::byte two = panel_[layout_.zeros_at + column * 16 + (4 * q_ + o) / 2];
    return static_cast<float>(static_cast<std::uint32_t>(two) >> (o % 2 * 4) & 15u);
  }

  const WeightLayout& layout_;
  const std::byte* panel_;
  std::int64_t first_k_;
  int q_;
  float scales_[4], zeros_[4];
};

/// Held as bf16: no scales.
struct Bf16Codes {
  static constexpr int kQuads = 16;
  static constexpr bool kTurned = false;
  DEVICE static const std::byte* at(const std::byte* block, int q, int i) {
    return four_at<16>(block, q, i);
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int j, int o, const FourScales<false>&) {
    return quads[j].words[o];
  }
};

template <bool kPerK>
struct Fp8Codes {
  static constexpr int kQuads = 8;
  static constexpr bool kTurned = kPerK;
  DEVICE static const std::byte* at(const std::byte* block, int q, int i) {
    return four_at<8>(block, q, i);
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int j, int o, const FourScales<kPerK>& s) {
    const std::uint32_t two = quads[j / 2].words[j % 2 * 2 + o / 2] >> (o % 2 * 16);
    const float low = e4m3_to_float(static_cast<std::uint8_t>(two));
    const float high = e4m3_to_float(static_cast<std::uint8_t>(two >> 8));
    return round_pair(low * s.scale_of(2 * j, o), high * s.scale_of(2 * j + 1, o));
  }
};

template <bool kPerK>
struct Int4Codes {
  static constexpr int kQuads = 4;
  static constexpr bool kTurned = kPerK;
  DEVICE static const std::byte* at(const std::byte* block, int q, int i) {
    return block + (q / 4 * 2 + i / 2) * 128 + q % 4 * 32 + i % 2 * 16;
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int j, int o, const FourScales<kPerK>& s) {
    const Quad& two = quads[j / 8 * 2 + o / 2];
    const std::uint32_t even = two.words[o % 2 * 2] >> (j % 8 * 4) & 15u;
    const std::uint32_t odd = two.words[o % 2 * 2 + 1] >> (j % 8 * 4) & 15u;
    return round_pair(
        (static_cast<float>(even) - s.zero_of(2 * j, o)) * s.scale_of(2 * j, o),
        (static_cast<float>(odd) - s.zero_of(2 * j + 1, o)) * s.scale_of(2 * j + 1, o));
  }
};

struct Fp4Codes {
  static constexpr int kQuads = 4;
  static constexpr bool kTurned = false;
  DEVICE static const std::byte* at(const std::byte* block, int q, int i) {
    return four_at<4>(block, q, i);
  }
  /// e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
  DEVICE static float value(std::uint32_t code) {
    const std::uint32_t size = code & 7u, sign = (code & 8u) << 28;
    const std::uint32_t bits = size < 2 ? size * 0x3f000000u : (size + 252u) << 22;
    return std::bit_cast<float>(bits | sign);
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int j, int o, const FourScales<false>& s) {
    const std::uint32_t two = quads[j / 4].words[o] >> (j % 4 * 8);
    return round_pair(value(two & 15u) * s.scale_of(2 * j, o),
                      value(two >> 4 & 15u) * s.scale_of(2 * j + 1, o));
  }
};

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
