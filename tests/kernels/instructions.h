#pragma once

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

/// Up to three words go in.
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
  bool open = false;  ///< below 2^-126, and rounded up to it: zero is right as well
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
  std::size_t beyond = 0;                 ///< other bits, but those are no part of the definition
  std::vector<std::string> wrong;
};
/// `answers` as `instructions()`.
Comparison compare(const std::vector<std::vector<std::uint32_t>>& answers,
                   const Measured& measured);

/// The device that is asked; null: there is none here.
const Backend* instruction_backend();
std::vector<std::vector<std::uint32_t>> ask_instructions(const Backend& backend);

}  // namespace troupe::kernels
