#include "model/awq.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace troupe::awq {
namespace {

constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

std::uint32_t word_at(std::span<const std::byte> words, std::int64_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, words.data() + index * 4, sizeof word);
  return word;
}

}  // namespace

void to_rows(std::span<const std::byte> words, std::int64_t outputs, std::int64_t inputs,
             std::byte* rows) {
  assert(outputs % 8 == 0 && inputs % 2 == 0);
  assert(words.size() == static_cast<std::size_t>(outputs * inputs / 2));
  // A tile's words and rows stay in the cache: one line wide on both sides.
  constexpr std::int64_t kWords = 16, kInputs = 128;
  const std::int64_t across = outputs / 8, row_bytes = inputs / 2;
  for (std::int64_t j0 = 0; j0 < across; j0 += kWords)
    for (std::int64_t k0 = 0; k0 < inputs; k0 += kInputs)
      for (std::int64_t j = j0; j < std::min(j0 + kWords, across); ++j)
        for (std::int64_t k = k0; k < std::min(k0 + kInputs, inputs); k += 2) {
          const std::uint32_t even = word_at(words, k * across + j);
          const std::uint32_t odd = word_at(words, (k + 1) * across + j);
          for (int p = 0; p < 8; ++p)
            rows[(8 * j + kOrder[p]) * row_bytes + k / 2] =
                static_cast<std::byte>((even >> 4 * p & 15) | (odd >> 4 * p & 15) << 4);
        }
}

void zeros_to_rows(std::span<const std::byte> words, std::int64_t outputs, std::int64_t groups,
                   std::uint8_t* rows) {
  const std::int64_t across = outputs / 8;
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t j = 0; j < across; ++j) {
      const std::uint32_t word = word_at(words, g * across + j);
      for (int p = 0; p < 8; ++p)
        rows[(8 * j + kOrder[p]) * groups + g] = static_cast<std::uint8_t>(word >> 4 * p & 15);
    }
}

void scales_to_rows(std::span<const std::byte> scales, std::int64_t outputs, std::int64_t groups,
                    std::byte* rows) {
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t i = 0; i < outputs; ++i)
      std::memcpy(rows + (i * groups + g) * 2, scales.data() + (g * outputs + i) * 2, 2);
}

}  // namespace troupe::awq
