#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/spec/stored_parts.h"

namespace troupe {

/// What a tensor of a random checkpoint is filled with.
struct RandomFill {
  enum class Kind : std::uint8_t {
    kUniform,   ///< numbers within `spread` of `centre`
    kBytes,     ///< any bytes: codes of four bits
    kFp8,       ///< any e4m3 code of at most 240
    kSameByte,  ///< `byte`
    kShape,     ///< `shape`, int32
  };
  Kind kind = Kind::kUniform;
  DType dtype = DType::kBf16;
  float centre = 0.0f, spread = 1.0f;
  std::uint8_t byte = 0;
  std::int32_t shape[2] = {};
};

/// Such that a product of a row of ones by the weight is about 1, and norms scale by about 1.
RandomFill random_fill(const WeightSpec& weight, const StoredPart& part);

/// Fills `out`, whose size is a multiple of the numbers'. The same seed gives the same bytes.
void fill_random(const RandomFill& fill, std::uint64_t seed, std::span<std::byte> out);

}  // namespace troupe
