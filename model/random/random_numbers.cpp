#include "model/random/random_numbers.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/bf16.h"
#include "runtime/split_mix.h"

namespace troupe {
namespace {

bool is_norm(WeightRole role) {
  switch (role) {
    case WeightRole::kFinalNorm:
    case WeightRole::kInputNorm:
    case WeightRole::kQaNorm:
    case WeightRole::kKvANorm:
    case WeightRole::kQNorm:
    case WeightRole::kKNorm:
    case WeightRole::kPostNorm:
      return true;
    default:
      return false;
  }
}

/// What codes as they are filled in are on average, without their sign.
double code_size(StoredFormat format) {
  switch (format) {
    case StoredFormat::kPlain: return 1.0;
    case StoredFormat::kFp8Blocks:
    case StoredFormat::kFp8Channels: return 55.0;
    case StoredFormat::kInt4Packed:
    case StoredFormat::kInt4Awq: return 4.6;
    case StoredFormat::kMxfp4: return 2.9;
  }
  return 1.0;
}

/// Numbers of the normal range only.
std::uint16_t to_f16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = ((u & 0x7fffffffu) - (112u << 23)) >> 13;
  return static_cast<std::uint16_t>((u >> 16 & 0x8000u) | magnitude);
}

template <class Number, class Convert>
void fill_numbers(const RandomFill& fill, SplitMix& bits, std::span<std::byte> out,
                  const Convert& convert) {
  const float step = fill.spread / 32768.0f;
  std::uint64_t four = 0;
  for (std::size_t i = 0; i * sizeof(Number) < out.size(); ++i) {
    four = i % 4 == 0 ? bits.next() : four >> 16;
    const auto level = static_cast<std::int16_t>(four & 0xffffu);
    const Number number = convert(fill.centre + step * static_cast<float>(level));
    std::memcpy(out.data() + i * sizeof(Number), &number, sizeof number);
  }
}

void fill_uniform(const RandomFill& fill, SplitMix& bits, std::span<std::byte> out) {
  switch (fill.dtype) {
    case DType::kF32:
      return fill_numbers<float>(fill, bits, out, [](float x) { return x; });
    case DType::kF16:
      return fill_numbers<std::uint16_t>(fill, bits, out, to_f16);
    default:
      return fill_numbers<Bf16>(fill, bits, out, [](float x) { return to_bf16(x); });
  }
}

}  // namespace

RandomFill random_fill(const WeightSpec& w, const StoredPart& part) {
  using Kind = RandomFill::Kind;
  RandomFill fill;
  fill.dtype = part.dtypes.front();
  const double size = 1.0 / std::sqrt(static_cast<double>(w.k));  // of one weight
  const double scale = size / code_size(w.format);
  switch (part.kind) {
    case PartKind::kScales:
      if (fill.dtype == DType::kU8) {
        fill.kind = Kind::kSameByte;
        fill.byte = static_cast<std::uint8_t>(127 + std::ilogb(scale));
      } else {
        fill.centre = static_cast<float>(scale);
        fill.spread = fill.centre * 0.5f;
      }
      break;
    case PartKind::kZeros:
      fill.kind = Kind::kSameByte;
      fill.byte = 0x88;  // two codes of four bits, each in the middle
      break;
    case PartKind::kShape:
      fill.kind = Kind::kShape;
      fill.shape[0] = static_cast<std::int32_t>(w.n * w.row_step);
      fill.shape[1] = static_cast<std::int32_t>(w.k);
      break;
    case PartKind::kCodes:
      if (fill.dtype == DType::kF8E4M3) {
        fill.kind = Kind::kFp8;
      } else if (w.format != StoredFormat::kPlain) {
        fill.kind = Kind::kBytes;
      } else if (w.precision == Precision::kVector) {
        fill.centre = is_norm(w.role) ? 1.0f : 0.0f;
        fill.spread = 1.0f / 64.0f;
      } else {
        fill.spread = static_cast<float>(std::sqrt(3.0) * size);
      }
      break;
  }
  return fill;
}

void fill_random(const RandomFill& fill, std::uint64_t seed, std::span<std::byte> out) {
  SplitMix bits(seed);
  switch (fill.kind) {
    case RandomFill::Kind::kUniform:
      return fill_uniform(fill, bits, out);
    case RandomFill::Kind::kSameByte:
      std::memset(out.data(), fill.byte, out.size());
      return;
    case RandomFill::Kind::kShape:
      std::memcpy(out.data(), fill.shape, out.size());
      return;
    case RandomFill::Kind::kBytes:
    case RandomFill::Kind::kFp8:
      break;
  }
  for (std::size_t i = 0; i < out.size(); i += 8) {
    std::uint64_t eight = bits.next();
    // An exponent of all ones loses its lowest bit: 240 is the largest that is left, and no NaN.
    if (fill.kind == RandomFill::Kind::kFp8) {
      const std::uint64_t ones =
          eight >> 3 & eight >> 4 & eight >> 5 & eight >> 6 & 0x0101010101010101u;
      eight ^= ones << 3;
    }
    std::memcpy(out.data() + i, &eight, std::min<std::size_t>(8, out.size() - i));
  }
}

}  // namespace troupe
