/// Questions and answers as text, and how two answers compare.
#include <charconv>
#include <iterator>

#include "instructions.h"

namespace troupe::kernels {
namespace {

std::string hex(std::uint32_t word) {
  char digits[8];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), word, 16).ptr;
  const std::string text(digits, end);
  return std::string(8 - text.size(), '0') + text;
}

/// A float32 without what is no part of its bits.
std::uint32_t plain(std::uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc00000u;
  return (bits & 0x7f800000u) == 0 ? 0 : bits;
}

bool agree(AnswerBits bits, bool open, std::uint32_t a, std::uint32_t b) {
  if (a == b) return true;
  switch (bits) {
    case AnswerBits::kAll:
      return false;
    case AnswerBits::kFloat: {
      const auto nothing = [](std::uint32_t x) { return (plain(x) & 0x7fffffffu) <= 0x00800000u; };
      return plain(a) == plain(b) || (open && nothing(a) && nothing(b));
    }
    case AnswerBits::kBf16Pair:
      return plain(a << 16) == plain(b << 16) && plain(a >> 16 << 16) == plain(b >> 16 << 16);
  }
  return false;
}

}  // namespace

std::string question(const Instruction& instruction, std::size_t i) {
  std::string text(instruction.name);
  for (int word = 0; word < instruction.inputs; ++word)
    text += " " + hex(instruction.asked[i].words[word]);
  return text;
}

Measured parse_answers(std::string_view text) {
  Measured measured;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('#') || equals == std::string_view::npos) continue;
    std::uint32_t answer = 0;
    std::from_chars(line.data() + equals + 3, line.data() + line.size(), answer, 16);
    measured.emplace(line.substr(0, equals), answer);
  }
  return measured;
}

Comparison compare(const std::vector<std::vector<std::uint32_t>>& answers,
                   const Measured& measured) {
  Comparison result;
  for (std::size_t n = 0; n < instructions().size(); ++n) {
    const Instruction& instruction = instructions()[n];
    for (std::size_t i = 0; i < instruction.asked.size(); ++i) {
      const std::uint32_t answer = answers[n][i];
      const Claim claimed = claim(instruction, i);
      const auto found = measured.find(question(instruction, i));
      const bool known = found != measured.end();
      if (!known && claimed.unknown) {
        ++result.unknown;
        continue;
      }
      const std::uint32_t right = known ? found->second : claimed.bits;
      ++(known ? result.measured : result.claimed);
      if (answer == right) continue;
      if (agree(instruction.bits, claimed.open, answer, right)) {
        ++result.beyond;
        continue;
      }
      result.wrong.push_back(question(instruction, i) + " = " + hex(answer) + ", not " +
                             hex(right) + (known ? " as measured" : " as the manual has it"));
    }
  }
  return result;
}

}  // namespace troupe::kernels
