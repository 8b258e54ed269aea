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

/// How weights are scaled: not at all; a block's by one float32, as those of block-quantized FP8
/// are; each output's by its own, of any type; each k's by its own.
enum class Scaling : std::uint8_t { kNone, kOne, kPerOutput, kPerK };

/// Blocks that have a scale in common: a scale's k are whole blocks, or all there are.
inline std::int32_t blocks_of_scale(const WeightLayout& l) {
  return l.scaled ? static_cast<std::int32_t>(ceil_div(l.scale_k, WeightLayout::kBlock)) : 1;
}

/// Where the scales of a panel's blocks lie, block after block.
template <Scaling kScaling>
struct ScaleWalk {
  const std::byte *scales = nullptr, *zeros = nullptr;  ///< of the block, or of its first k
  std::int32_t of_column = 0;                           ///< blocks before it that have the same

  ScaleWalk() = default;
  /// `block` counts from the panel's first.
  DEVICE ScaleWalk(const WeightLayout& l, const std::byte* panel, std::int32_t block,
                   std::int32_t blocks_of_scale) {
    if constexpr (kScaling == Scaling::kNone) return;
    std::int32_t column = block * static_cast<std::int32_t>(WeightLayout::kBlock);
    if constexpr (kScaling != Scaling::kPerK) {  // 64 bits would take a long division
      column = static_cast<std::int32_t>(static_cast<std::uint32_t>(block) /
                                         static_cast<std::uint32_t>(blocks_of_scale));
      of_column = block - column * blocks_of_scale;
    }
    scales = panel + l.scales_at + column * l.scale_bytes;
    zeros = panel + l.zeros_at + column * kZeroBytes;
  }
  DEVICE void next(const WeightLayout& l, std::int32_t blocks_of_scale) {
    if constexpr (kScaling == Scaling::kNone) return;
    std::int64_t columns = WeightLayout::kBlock;
    if constexpr (kScaling != Scaling::kPerK) {
      columns = ++of_column == blocks_of_scale ? 1 : 0;
      if (columns == 1) of_column = 0;
    }
    scales += columns * l.scale_bytes;
    zeros += columns * kZeroBytes;
  }

  static constexpr std::int64_t kZeroBytes = 16;  ///< of a column
};

/// What a lane's weights of one block are scaled with: as it is stored once it has been asked for,
/// and what it means once it has settled. Who does something else in between does not wait for it.
template <Scaling kScaling>
class LaneScales {
 public:
  /// Asks, for the four outputs of q; of single k those of a step's eight.
  DEVICE void ask(const WeightLayout& l, const ScaleWalk<kScaling>& of, int q, int step) {
    if constexpr (kScaling == Scaling::kNone) return;
    if constexpr (kScaling == Scaling::kOne) {
      scales_[0] = *reinterpret_cast<const std::uint32_t*>(of.scales);
      return;
    }
    const std::int64_t apart = kPerK ? l.scale_bytes : l.scale_n == 1 ? size_of(l) : 0;
    const std::int64_t first = l.scale_n == 1 ? 4 * q * size_of(l) : 0;
    const std::int64_t k = kPerK ? step * 8 : 0;
    const std::byte* const at = of.scales + first + k * l.scale_bytes;
    if (l.scaled && l.scale_dtype == DType::kF32) {
#pragma unroll
      for (int i = 0; i < kScales; ++i)
        scales_[i] = *reinterpret_cast<const std::uint32_t*>(at + i * apart);
    } else if (l.scaled && l.scale_dtype == DType::kF8E8M0) {
#pragma unroll
      for (int i = 0; i < kScales; ++i) scales_[i] = static_cast<std::uint32_t>(at[i * apart]);
    } else if (l.scaled) {
#pragma unroll
      for (int i = 0; i < kScales; ++i)
        scales_[i] = *reinterpret_cast<const std::uint16_t*>(at + i * apart);
    }
    if (!l.zeros) return;
#pragma unroll
    for (int i = 0; i < kZeros; ++i)
      zeros_[i] = reinterpret_cast<const std::uint16_t*>(
          of.zeros + (k + i) * ScaleWalk<kScaling>::kZeroBytes)[q];
  }
  DEVICE void settle(const WeightLayout& l) {
    if constexpr (kScaling == Scaling::kNone || kScaling == Scaling::kOne) return;
    if (!l.zeros) {  // eight, where none are stored
#pragma unroll
      for (int i = 0; i < kZeros; ++i) zeros_[i] = 0x8888;
    }
    if (l.scaled && l.scale_dtype == DType::kF32) return;
#pragma unroll
    for (int i = 0; i < kScales; ++i) {
      float scale = 1;
      if (l.scaled && l.scale_dtype == DType::kF8E8M0)
        scale = cpu::e8m0_value(scales_[i]);
      else if (l.scaled)
        scale = l.scale_dtype == DType::kF16 ? widen_halves(scales_[i]).low : low_half(scales_[i]);
      scales_[i] = std::bit_cast<std::uint32_t>(scale);
    }
  }
  /// Of the step's k-th, or of output o.
  DEVICE float scale_of(int k, int o) const {
    return std::bit_cast<float>(scales_[kScaling == Scaling::kOne ? 0 : kPerK ? k : o]);
  }
  /// 2^23 more than that.
  DEVICE float zero_of(int k, int o) const {
    return nibble_above_2_23(zeros_[kPerK ? k : 0] >> (o * 4));
  }

 private:
  static constexpr bool kPerK = kScaling == Scaling::kPerK;
  static constexpr int kScales = kPerK ? 8 : kScaling == Scaling::kPerOutput ? 4 : 1;
  static constexpr int kZeros = kPerK ? 8 : 1;

  DEVICE static std::int64_t size_of(const WeightLayout& l) {
    return l.scale_dtype == DType::kF32 ? 4 : l.scale_dtype == DType::kF8E8M0 ? 1 : 2;
  }

  std::uint32_t scales_[kScales] = {};
  std::uint32_t zeros_[kZeros] = {};  ///< of four outputs, four bits each
};

// A format: where the i-th of a step's kQuads times sixteen bytes lies, which kSteps steps share,
// and its pair j of output o.

/// Held as bf16: no scales.
struct Bf16Codes {
  static constexpr int kQuads = 4;
  static constexpr int kSteps = 1;
  static constexpr Scaling kScaling = Scaling::kNone;
  DEVICE static const std::byte* at(const std::byte* block, int q, int step, int i) {
    return four_at<16>(block, q, step * 4 + i);
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int, int j, int o,
                                   const LaneScales<kScaling>&) {
    return quads[j].words[o];
  }
};

template <Scaling kBy>
struct Fp8Codes {
  static constexpr int kQuads = 2;
  static constexpr int kSteps = 1;
  static constexpr Scaling kScaling = kBy;
  DEVICE static const std::byte* at(const std::byte* block, int q, int step, int i) {
    return four_at<8>(block, q, step * 2 + i);
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int, int j, int o,
                                   const LaneScales<kScaling>& s) {
    const std::uint32_t two = quads[j / 2].words[j % 2 * 2 + o / 2] >> (o % 2 * 16);
    const Floats2 codes = e4m3_pair(two);
    return round_pair(codes.low * s.scale_of(2 * j, o), codes.high * s.scale_of(2 * j + 1, o));
  }
};

/// Two steps have their codes in the same sixteen bytes.
template <Scaling kBy>
struct Int4Codes {
  static constexpr int kQuads = 2;
  static constexpr int kSteps = 2;
  static constexpr Scaling kScaling = kBy;
  DEVICE static const std::byte* at(const std::byte* block, int q, int step, int i) {
    return block + (q / 4 * 2 + step / 2) * 128 + q % 4 * 32 + i * 16;
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int step, int j, int o,
                                   const LaneScales<kScaling>& s) {
    const int shift = step % 2 * 16 + j * 4;
    const std::uint32_t even = quads[o / 2].words[o % 2 * 2] >> shift;
    const std::uint32_t odd = quads[o / 2].words[o % 2 * 2 + 1] >> shift;
    return round_pair(
        (nibble_above_2_23(even) - s.zero_of(2 * j, o)) * s.scale_of(2 * j, o),
        (nibble_above_2_23(odd) - s.zero_of(2 * j + 1, o)) * s.scale_of(2 * j + 1, o));
  }
};

struct Fp4Codes {
  static constexpr int kQuads = 1;
  static constexpr int kSteps = 1;
  static constexpr Scaling kScaling = Scaling::kPerOutput;
  DEVICE static const std::byte* at(const std::byte* block, int q, int step, int) {
    return four_at<4>(block, q, step);
  }
  DEVICE static std::uint32_t pair(const Quad* quads, int, int j, int o,
                                   const LaneScales<kScaling>& s) {
    const Floats2 codes = e2m1_pair(quads[0].words[o] >> (j * 8));
    return round_pair(codes.low * s.scale_of(2 * j, o), codes.high * s.scale_of(2 * j + 1, o));
  }
};

/// body<codes>(), with what a matrix is stored by.
template <class Body>
void with_codes(const WeightLayout& l, const Body& body) {
  switch (l.codes) {
    case Codes::kFp8:
      if (l.turned()) return body.template operator()<Fp8Codes<Scaling::kPerK>>();
      if (l.scaled && l.scale_dtype == DType::kF32 && l.scale_n != 1)
        return body.template operator()<Fp8Codes<Scaling::kOne>>();
      return body.template operator()<Fp8Codes<Scaling::kPerOutput>>();
    case Codes::kInt4:
      if (l.turned()) return body.template operator()<Int4Codes<Scaling::kPerK>>();
      return body.template operator()<Int4Codes<Scaling::kPerOutput>>();
    case Codes::kFp4:
      return body.template operator()<Fp4Codes>();
    default:
      return body.template operator()<Bf16Codes>();
  }
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
