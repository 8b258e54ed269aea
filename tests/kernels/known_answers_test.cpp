#include "kernels/known_answers.h"

#include <set>

#include "tests/kernels/support.h"
#include "tests/kernels/twin.h"

namespace troupe::kernels {
namespace {

TEST_CASE("the table holds what the plain twin of each family gives") {
  for (int n = 0; n < kNumericsCount; ++n) {
    const auto numerics = static_cast<Numerics>(n);
    CAPTURE(to_string(numerics));
    for (std::size_t i = 0; i < known_questions().size(); ++i) {
      CAPTURE(to_string(known_questions()[i]));
      CHECK(twin_answer(numerics, i) == known_answer(numerics, i));
    }
  }
}

TEST_CASE("the kernels of every family that this processor has give the known answers") {
  for (const Numerics numerics : supported_numerics()) {
    CAPTURE(to_string(numerics));
    for (std::size_t i = 0; i < known_questions().size(); ++i) {
      CAPTURE(to_string(known_questions()[i]));
      Scratch scratch;
      CHECK(ask({numerics, nullptr, &scratch}, i) == known_answer(numerics, i));
    }
  }
}

TEST_CASE("questions have names and answers of their own") {
  std::set<std::string> names;
  for (const Question& question : known_questions()) names.insert(to_string(question));
  CHECK(names.size() == known_questions().size());
  for (int n = 0; n < kNumericsCount; ++n) {
    std::set<std::uint64_t> answers;
    for (std::size_t i = 0; i < known_questions().size(); ++i)
      answers.insert(known_answer(static_cast<Numerics>(n), i));
    CHECK(answers.size() == known_questions().size());
  }
}

TEST_CASE("one wrong bit in the result of an op is a wrong answer") {
  for (const Numerics numerics : supported_numerics()) {
    for (const char* op : {"linear", "linear_heads", "expert_ffn", "mla_attention"}) {
      const Fault fault(op);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < known_questions().size(); ++i) {
        Scratch scratch;
        const bool right =
            ask({numerics, nullptr, &scratch, &fault}, i) == known_answer(numerics, i);
        CHECK(right == !to_string(known_questions()[i]).starts_with(std::string(op) + " "));
        wrong += right ? 0 : 1;
      }
      CHECK(wrong > 0);
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
