#include "model/placement/float_sum.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace troupe {
namespace {

constexpr std::size_t kAccumulators = 4;
constexpr std::size_t kLevels = 4;
constexpr std::size_t kChunkBits = 4;  // PyTorch widens it from 2^20 items of a row on

template <std::size_t kLanes>
using Lanes = std::array<float, kLanes>;

template <std::size_t kLanes>
void add(Lanes<kLanes>& to, const float* values) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) to[lane] += values[lane];
}

/// Sums `rows` rows of kLanes columns. Rows go to the accumulators in turn; each adds up chunks,
/// and chunks of chunks, so that numbers of like size meet.
template <std::size_t kLanes>
Lanes<kLanes> sum_columns(const float* values, std::size_t rows) {
  std::array<std::array<Lanes<kLanes>, kAccumulators>, kLevels> sums{};
  const std::size_t rounds = rows / kAccumulators;
  constexpr std::size_t kChunk = std::size_t{1} << kChunkBits;
  const auto add_round = [&](std::size_t round) {
    for (std::size_t k = 0; k < kAccumulators; ++k)
      add<kLanes>(sums[0][k], values + (round * kAccumulators + k) * kLanes);
  };
  std::size_t round = 0;
  while (round + kChunk <= rounds) {
    for (std::size_t i = 0; i < kChunk; ++i) add_round(round++);
    for (std::size_t level = 1; level < kLevels; ++level) {
      for (std::size_t k = 0; k < kAccumulators; ++k) {
        add<kLanes>(sums[level][k], sums[level - 1][k].data());
        sums[level - 1][k] = {};
      }
      if ((round & ((kChunk - 1) << (level * kChunkBits))) != 0) break;
    }
  }
  while (round < rounds) add_round(round++);
  for (std::size_t level = 1; level < kLevels; ++level) {
    for (std::size_t k = 0; k < kAccumulators; ++k) add<kLanes>(sums[0][k], sums[level][k].data());
  }
  Lanes<kLanes> total = sums[0][0];
  for (std::size_t row = rounds * kAccumulators; row < rows; ++row)
    add<kLanes>(total, values + row * kLanes);
  for (std::size_t k = 1; k < kAccumulators; ++k) add<kLanes>(total, sums[0][k].data());
  return total;
}

}  // namespace

float pytorch_sum(const float* values, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  if (count < kLanes) return sum_columns<1>(values, count)[0];
  const std::size_t rows = count / kLanes;
  const auto lanes = sum_columns<kLanes>(values, rows);
  float sum = 0;
  for (std::size_t i = rows * kLanes; i < count; ++i) sum += values[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace troupe
