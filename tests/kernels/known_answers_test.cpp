#include "kernels/known_answers.h"

#include <set>

#include "breakable_stream.h"
#include "support.h"
#include "tests/kernels/twin.h"

namespace troupe::kernels {
namespace {

TEST_CASE("the table holds what the plain twins give") {
  for (const Numerics numerics : exact_numerics()) {
    CAPTURE(to_string(numerics));
    for (std::size_t i = 0; i < known_questions().size(); ++i) {
      CAPTURE(to_string(known_questions()[i]));
      CHECK(twin_answer(numerics, i) == known_answer(numerics, i));
    }
  }
}

TEST_CASE("the kernels of every family that this processor has give the known answers") {
  for (const Family& f : cache_families()) {
    CAPTURE(to_string(f));
    for (std::size_t i = 0; i < known_questions().size(); ++i) {
      CAPTURE(to_string(known_questions()[i]));
      Stream alone(f.options(nullptr));
      CHECK(ask(alone, i) == known_answer(f.numerics, i));
      TestStream threads(f, 3);
      CHECK(ask(threads, i) == known_answer(f.numerics, i));
    }
  }
}

TEST_CASE("questions have names and answers of their own") {
  std::set<std::string> names;
  for (const Question& question : known_questions()) names.insert(to_string(question));
  CHECK(names.size() == known_questions().size());
  for (const Numerics numerics : exact_numerics()) {
    std::set<std::uint64_t> answers;
    for (std::size_t i = 0; i < known_questions().size(); ++i)
      answers.insert(known_answer(numerics, i));
    CHECK(answers.size() == known_questions().size());
  }
}

TEST_CASE("one wrong bit in the result of an op is a wrong answer") {
  for (const Family& f : families()) {
    for (const char* op : {"linear", "expert_mlp", "attention"}) {
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < known_questions().size(); ++i) {
        CAPTURE(to_string(known_questions()[i]));
        BreakableStream stream(f);
        stream.fault = op;
        const bool right = ask(stream, i) == known_answer(f.numerics, i);
        CHECK(right == !to_string(known_questions()[i]).starts_with(std::string(op) + " "));
        wrong += right ? 0 : 1;
      }
      CHECK(wrong > 0);
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
