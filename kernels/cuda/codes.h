#pragma once

#include "kernels/cpu/weight_decode.h"
#include "kernels/cpu/weight_layout.h"
#include "kernels/cuda/math.h"

/// What the codes of a packed block mean (kernels/cpu/weight_layout.h). A lane has the four outputs
/// 4 q .. 4 q + 3 of a panel, and goes through a block of k in four steps of eight, pairs of which
/// lie together.
namespace troupe::kernels::TROUPE_CUDA_SPACE {

/// Where a row of a tile has four q's sixteen bytes, if rows have 64 bytes.
template <int kRowsOfTile>
DEVICE const std::byte* four_at(const std::byte* block, int q, int row) {
  return block + (q / 4 * kRowsOfTile + row) * 64 + q % 4 * 16;
}

/// What a lane's weights of one block are scaled with. kTurned: a scale for each k; else for each
/// output.
template <bool kTurned>
class LaneScales {
 public:
  /// `block` counts from the panel's first.
  DEVICE LaneScales(const WeightLayout& l, const std::byte* panel, std::int64_t block, int q)
      : layout_(l), panel_(panel), first_k_(block * WeightLayout::kBlock), q_(q) {
    if constexpr (!kTurned) {
      // A scale's k are whole blocks, or all there are; 64 bits would take a long division.
      const auto blocks_of_scale =
          static_cast<std::uint32_t>((l.scale_k + WeightLayout::kBlock - 1) / WeightLayout::kBlock);
      const std::uint32_t column =
          l.scaled ? static_cast<std::uint32_t>(block) / blocks_of_scale : 0;
#pragma unroll
      for (int o = 0; o < 4; ++o) {
        scales_[o] = scale(column, o);
        zeros_[o] = zero(column, o);
      }
    }
  }
  /// Before a step's weights are asked for.
  DEVICE void begin(int step) {
    if constexpr (kTurned) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        scales_[k] = scale(first_k_ + step * 8 + k, 0);
        if (layout_.zeros) two_zeros_[k] = zero_bytes(first_k_ + step * 8 + k);
      }
    }
  }
  /// Of the step's k-th, or of output o.
  DEVICE float scale_of(int k, int o) const { return scales_[kTurned ? k : o]; }
  DEVICE float zero_of(int k, int o) const {
    if constexpr (!kTurned) return zeros_[o];
    return layout_.zeros ? static_cast<float>(two_zeros_[k] >> (o * 4) & 15u) : 8.0f;
  }

 private:
  DEVICE float scale(std::int64_t column, int o) const {
    if (!layout_.scaled) return 1.0f;
    return cpu::number_at(panel_ + layout_.scales_at + column * layout_.scale_bytes,
                          layout_.scale_dtype, layout_.scale_n == 1 ? 4 * q_ + o : 0);
  }
  DEVICE std::uint32_t zero_bytes(std::int64_t column) const {
    const std::byte* two = panel_ + layout_.zeros_at + column * 16 + 2 * q_;
    return static_cast<std::uint32_t>(two[0]) | static_cast<std::uint32_t>(two[1]) << 8;
  }
  DEVICE float zero(std::int64_t column, int o) const {
    return layout_.zeros ? static_cast<float>(zero_bytes(column) >> (o * 4) & 15u) : 8.0f;
  }

  const WeightLayout& layout_;
  const std::byte* panel_;
  std::int64_t first_k_;
  int q_;
  float scales_[kTurned ? 8 : 4], zeros_[kTurned ? 1 : 4];
  std::uint32_t two_zeros_[kTurned ? 8 : 1];  ///< of four outputs, four bits each
};

// A format: where the i-th of a step's kQuads times sixteen bytes lies, and its pair j of output o.

/// Held as bf16: no scales.
struct Bf16Codes {
  static constexpr int kQuads = 4;
  static constexpr bool kTurned = false;
  DEVICE static const std::byte* at(const std::byte* block, int q, int step, int i) {
    return four_at<16>(block, q, step * 4 + i);
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int, int j, int o, const LaneScales<false>&) {
    return quads[j].words[o];
  }
};

template <bool kPerK>
struct Fp8Codes {
  static constexpr int kQuads = 2;
  static constexpr bool kTurned = kPerK;
  DEVICE static const std::byte* at(const std::byte* block, int q, int step, int i) {
    return four_at<8>(block, q, step * 2 + i);
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int, int j, int o,
                                   const LaneScales<kPerK>& s) {
    const std::uint32_t two = quads[j / 2].words[j % 2 * 2 + o / 2] >> (o % 2 * 16);
    const float low = e4m3_to_float(static_cast<std::uint8_t>(two));
    const float high = e4m3_to_float(static_cast<std::uint8_t>(two >> 8));
    return round_pair(low * s.scale_of(2 * j, o), high * s.scale_of(2 * j + 1, o));
  }
};

/// Two steps have their codes in the same sixteen bytes.
template <bool kPerK>
struct Int4Codes {
  static constexpr int kQuads = 2;
  static constexpr bool kTurned = kPerK;
  DEVICE static const std::byte* at(const std::byte* block, int q, int step, int i) {
    return block + (q / 4 * 2 + step / 2) * 128 + q % 4 * 32 + i * 16;
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int step, int j, int o,
                                   const LaneScales<kPerK>& s) {
    const int shift = step % 2 * 16 + j * 4;
    const std::uint32_t even = quads[o / 2].words[o % 2 * 2] >> shift & 15u;
    const std::uint32_t odd = quads[o / 2].words[o % 2 * 2 + 1] >> shift & 15u;
    return round_pair(
        (static_cast<float>(even) - s.zero_of(2 * j, o)) * s.scale_of(2 * j, o),
        (static_cast<float>(odd) - s.zero_of(2 * j + 1, o)) * s.scale_of(2 * j + 1, o));
  }
};

struct Fp4Codes {
  static constexpr int kQuads = 1;
  static constexpr bool kTurned = false;
  DEVICE static const std::byte* at(const std::byte* block, int q, int step, int) {
    return four_at<4>(block, q, step);
  }
  /// e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
  DEVICE static float value(std::uint32_t code) {
    const std::uint32_t size = code & 7u, sign = (code & 8u) << 28;
    const std::uint32_t bits = size < 2 ? size * 0x3f000000u : (size + 252u) << 22;
    return std::bit_cast<float>(bits | sign);
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int, int j, int o,
                                   const LaneScales<false>& s) {
    const std::uint32_t two = quads[0].words[o] >> (j * 8);
    return round_pair(value(two & 15u) * s.scale_of(2 * j, o),
                      value(two >> 4 & 15u) * s.scale_of(2 * j + 1, o));
  }
};

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
