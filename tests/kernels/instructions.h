#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"

/// What the kernels of the CUDA back-end compute with, asked one by one at the corners: the twin's
/// reading of it is a claim until a GPU has answered.
namespace troupe::kernels {

/// Up to four words go in.
struct alignas(16) Asked {
  std::uint32_t words[4] = {};
};

/// How an answer is compared: what is no part of the bits (kernels/README.md) is left out.
enum class AnswerBits : std::uint8_t {
  kAll,
  kFloat,     ///< NaNs are alike; denormals and both zeros are zero
  kBf16Pair,  ///< the same of each half
};

struct Instruction {
  std::string_view name;
  int inputs;
  AnswerBits bits;
  std::vector<Asked> asked;
};

/// All, with what is asked of each.
const std::vector<Instruction>& instructions();

/// What PTX's manual makes of it, by arithmetic in float64 that shares nothing with the kernels.
struct Claim {
  std::uint32_t bits = 0;
  bool open = false;     ///< below 2^-126, and rounded up to it: zero is right as well
  bool unknown = false;  ///< the manual leaves it open: only a GPU can say, and then it is held to
};
Claim claim(const Instruction& instruction, std::size_t i);

/// Answers that were measured: "add 3f800000 3f800000 = 40000000" in lines, `#` before what is no
/// answer. By what stands before " = ".
using Measured = std::unordered_map<std::string, std::uint32_t>;
Measured parse_answers(std::string_view text);

/// "add 3f800000 3f800000".
std::string question(const Instruction& instruction, std::size_t i);

struct Comparison {
  std::size_t measured = 0, claimed = 0;  ///< answers held to what was measured, or to the claim
  std::size_t unknown = 0;                ///< not held to anything: no GPU has answered
  std::size_t beyond = 0;                 ///< other bits, but those are no part of the definition
  std::vector<std::string> wrong;
};
/// `answers` as `instructions()`.
Comparison compare(const std::vector<std::vector<std::uint32_t>>& answers,
                   const Measured& measured);

/// The device that is asked; null: there is none here.
const Backend* instruction_backend();
/// `order_seed` as in Stream::Options.
std::vector<std::vector<std::uint32_t>> ask_instructions(const Backend& backend,
                                                         std::uint64_t order_seed = 0);

/// What stands in the matrices of an mma that is asked for, and whose sums are exact in any order
/// but those of kDrawn and the last two. A number of a set is such a kind and a seed.
enum class MmaKind : std::uint32_t {
  kIntegers,   ///< small ones
  kCancelled,  ///< small ones between 2^20 and -2^20
  kNoB,        ///< b is zero: what is there stays as it is
  kNoA,
  kOneK,      ///< one product each, at k = the seed
  kInfinite,  ///< a row of infinities, by zeros too
  kDrawn,     ///< sums that are rounded
  kAlike,     ///< the same: all rows of a are alike, all columns of b, all of c
  kApart,     ///< the same
};
constexpr std::uint32_t mma_set(MmaKind kind, std::uint32_t seed) {
  return static_cast<std::uint32_t>(kind) << 8 | seed;
}
constexpr MmaKind mma_kind(std::uint32_t set) { return static_cast<MmaKind>(set >> 8); }

/// Any word, of three numbers.
constexpr std::uint32_t mixed(std::uint32_t set, std::uint32_t i, std::uint32_t j) {
  std::uint32_t x = set * 0x9e3779b1u + i * 0x85ebca6bu + j * 0xc2b2ae35u + 1;
  x = (x ^ x >> 15) * 0x2c1b3c6du;
  x = (x ^ x >> 12) * 0x297a2d39u;
  return x ^ x >> 15;
}
constexpr std::uint32_t mma_integer(std::uint32_t word) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(word % 17) - 8)) >> 16;
}
/// Of 2^-4 to 2^4.
constexpr std::uint32_t mma_number(std::uint32_t word) {
  return (word & 0x807fu) | (123u + (word >> 16 & 7u)) << 7;
}

/// bf16, by row and k.
constexpr std::uint32_t mma_a(std::uint32_t set, std::uint32_t row, std::uint32_t k) {
  const std::uint32_t word = mixed(set, row, k), seed = set & 255u;
  switch (mma_kind(set)) {
    case MmaKind::kIntegers:
      return mma_integer(word);
    case MmaKind::kCancelled:
      return k == 0 ? 0x4480u : k == 15 ? 0xc480u : mma_integer(word);
    case MmaKind::kNoA:
      return 0;
    case MmaKind::kOneK:
      return k == seed % 16 ? mma_number(word) : 0;
    case MmaKind::kInfinite:
      return row == seed % 16 && k % 5 == 0 ? 0x7f80u : mma_integer(word);
    case MmaKind::kAlike:
      return mma_number(mixed(set, 0, k));
    default:
      return mma_number(word);
  }
}
/// bf16, by k and column.
constexpr std::uint32_t mma_b(std::uint32_t set, std::uint32_t k, std::uint32_t column) {
  const std::uint32_t word = mixed(set, k, column + 100);
  switch (mma_kind(set)) {
    case MmaKind::kIntegers:
      return mma_integer(word);
    case MmaKind::kCancelled:
      return k % 15 == 0 ? 0x4480u : mma_integer(word);
    case MmaKind::kNoB:
      return 0;
    case MmaKind::kInfinite:
      return column == 3 ? 0x4000u : mma_integer(word);
    case MmaKind::kAlike:
      return mma_number(mixed(set, k, 100));
    default:
      return mma_number(word);
  }
}
/// float32, by row and column.
constexpr std::uint32_t mma_c(std::uint32_t set, std::uint32_t row, std::uint32_t column) {
  const std::uint32_t word = mixed(set, row, column + 200);
  switch (mma_kind(set)) {
    case MmaKind::kNoB:
    case MmaKind::kNoA:
    case MmaKind::kDrawn:
    case MmaKind::kApart:
      return (word & 0x807fffffu) | (123u + (word >> 23 & 7u)) << 23;
    case MmaKind::kAlike:
      return 0x3f9e3779u;
    case MmaKind::kOneK:
      return 0;
    default:
      return mma_integer(word) << 16;
  }
}

}  // namespace troupe::kernels
