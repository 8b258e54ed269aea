/// The instructions of the CUDA back-end, on a GPU or on its twin, held to what a GPU answered
/// (tests/gpu/instructions.txt), and where none was asked yet to what PTX's manual says.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "instructions.h"
#include "kernels/cuda/twin/twin.h"
#include "runtime/float_mode.h"
#include "tests/source_path.h"

namespace troupe::kernels {
namespace {

const std::string kMeasuredFile = testing::source_path("tests/gpu/instructions.txt");

Measured measured_answers() {
  std::ifstream file(kMeasuredFile);
  return parse_answers(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::string first_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size() && i < 20; ++i) text += "\n  " + lines[i];
  return text;
}

/// Where TROUPE_TEST_INSTRUCTIONS says: what becomes kMeasuredFile, if a GPU answered.
void write_answers(const std::vector<std::vector<std::uint32_t>>& answers) {
  const char* const path = std::getenv("TROUPE_TEST_INSTRUCTIONS");
  if (path == nullptr) return;
  std::ofstream file(path);
  for (std::size_t n = 0; n < answers.size(); ++n)
    for (std::size_t i = 0; i < answers[n].size(); ++i) {
      char line[64];
      std::snprintf(line, sizeof line, " = %08x\n", answers[n][i]);
      file << question(instructions()[n], i) << line;
    }
  REQUIRE(file.good());
}

TEST_CASE("instructions answer as a GPU did, or as the manual says") {
  const Backend* backend = instruction_backend();
  if (backend == nullptr) {
    MESSAGE("instructions: not asked, there is no such device");
    return;
  }
  const auto answers = [&] {
    const FloatMode mode;
    return ask_instructions(*backend,
                            cuda_twin::with_mma_order(1, cuda_twin::MmaOrder::kAligned));
  }();
  const Comparison result = compare(answers, measured_answers());
  MESSAGE("instructions of " << backend->name << ": " << result.measured
                             << " held to a GPU's answers, " << result.claimed
                             << " to a claim (the manual's words, no GPU asked), " << result.unknown
                             << " to nothing (only a GPU can say); " << result.beyond
                             << " differ in what is no part of the bits");
  INFO(first_lines(result.wrong));
  CHECK(result.wrong.size() == 0);
  write_answers(answers);
}

TEST_CASE("an answer that was measured counts, and another one is told") {
  std::vector<std::vector<std::uint32_t>> claims;
  for (const Instruction& instruction : instructions()) {
    auto& all = claims.emplace_back();
    for (std::size_t i = 0; i < instruction.asked.size(); ++i)
      all.push_back(claim(instruction, i).bits);
  }
  CHECK(compare(claims, {}).wrong.empty());
  const std::string asked = question(instructions()[0], 5);
  const Measured other = parse_answers("# a GPU's\n" + asked + " = 12345678\n");
  const Comparison result = compare(claims, other);
  CHECK(result.measured == 1);
  REQUIRE(result.wrong.size() == 1);
  CHECK(result.wrong[0].find(asked) == 0);
  CHECK(result.wrong[0].find("not 12345678 as measured") != std::string::npos);
}

TEST_CASE("an mma has the answers that are claimed in any order, and others where none is") {
  const Backend* backend = instruction_backend();
  if (backend == nullptr || backend->name != "cuda_twin") return;  // a GPU has one order
  const FloatMode mode;
  std::vector<std::vector<std::vector<std::uint32_t>>> by_order;
  for (int order = 0; order < cuda_twin::kMmaOrders; ++order)
    by_order.push_back(ask_instructions(
        *backend, cuda_twin::with_mma_order(1, static_cast<cuda_twin::MmaOrder>(order))));
  for (const auto& answers : by_order) {
    const Comparison result = compare(answers, {});
    INFO(first_lines(result.wrong));
    CHECK(result.wrong.empty());
    CHECK(result.unknown == 8 * 128);
    CHECK((&answers == by_order.data()) == (answers == by_order[0]));
  }
}

TEST_CASE("what no claim says is held to what was measured") {
  std::vector<std::vector<std::uint32_t>> claims;
  std::string unknown;
  for (const Instruction& instruction : instructions()) {
    auto& all = claims.emplace_back();
    for (std::size_t i = 0; i < instruction.asked.size(); ++i) {
      all.push_back(claim(instruction, i).bits);
      if (claim(instruction, i).unknown) unknown = question(instruction, i);
    }
  }
  REQUIRE(unknown.starts_with("mma "));
  CHECK(compare(claims, parse_answers(unknown + " = 12345678\n")).wrong.size() == 1);
}

TEST_CASE("what is no part of the bits may differ, and nothing else") {
  const auto differs = [](std::string_view name, std::uint32_t claimed, std::uint32_t answer) {
    for (std::size_t n = 0; n < instructions().size(); ++n) {
      const Instruction& instruction = instructions()[n];
      if (instruction.name != name) continue;
      for (std::size_t i = 0; i < instruction.asked.size(); ++i) {
        if (claim(instruction, i).bits != claimed || claim(instruction, i).open) continue;
        std::vector<std::vector<std::uint32_t>> answers;
        for (const Instruction& other : instructions())
          for (auto& all = answers.emplace_back(); all.size() < other.asked.size();)
            all.push_back(claim(other, all.size()).bits);
        answers[n][i] = answer;
        return compare(answers, {}).wrong.size();
      }
    }
    return std::size_t{99};
  };
  CHECK(differs("add", 0x7fc00000, 0xffc01234) == 0);         // a NaN
  CHECK(differs("add", 0x00000000, 0x80000000) == 0);         // a zero
  CHECK(differs("add", 0x00000000, 0x00800000) == 1);         // no zero
  CHECK(differs("add", 0x40000000, 0x40000001) == 1);         // a last bit
  CHECK(differs("to_e4m3", 0x7e, 0x7f) == 1);                 // 448 is no NaN
  CHECK(differs("round_pair", 0x3f803f80, 0x3f813f80) == 1);  // a tie the wrong way
}

}  // namespace
}  // namespace troupe::kernels
