#include "model/grammar/regex.h"

#include <doctest/doctest.h>

#include "model/grammar/grammar_writer.h"
#include "model/grammar/number_text.h"
#include "model/grammar/text_automaton.h"

namespace troupe {
namespace {

TextAutomaton regex_states(std::string_view pattern, TextAutomaton::Match match) {
  const auto regex = Regex::parse(pattern);
  REQUIRE(regex.ok());
  auto states = TextAutomaton::make(*regex, match, TextAutomaton::Reading::kSurely);
  REQUIRE(states.ok());
  return std::move(*states);
}

TEST_CASE("an expression is written as it is") {
  GrammarWriter writer;
  const auto root = writer.regex("^ab[0-9]{2,3}(c|\"d\")*$");
  REQUIRE(root.ok());
  CHECK(std::move(writer).finish(*root) ==
        "root ::= regex-2\ntext-1 ::= \"ab\" [0-9]{2,3} (\"c\" | \"\\\"d\\\"\")*\nregex-2 ::= "
        "text-1\n");
}

TEST_CASE("automata meet, and exclude each other") {
  const auto some_a = regex_states("a", TextAutomaton::Match::kSearch);
  const auto only_b = regex_states("b*", TextAutomaton::Match::kWhole);
  CHECK(some_a.accepts("bab"));
  CHECK_FALSE(some_a.accepts("bb"));
  CHECK(some_a.complement().accepts("bb"));
  CHECK(some_a.intersect(only_b)->empty());
  CHECK_FALSE(some_a.complement().intersect(only_b)->empty());
  const auto names = TextAutomaton::all_but({"a", "ab", "\u00e9"});
  for (const char* text : {"", "abc", "b", "aa", "\u00e9x"}) CHECK(names->accepts(text));
  for (const char* text : {"a", "ab", "\u00e9"}) CHECK_FALSE(names->accepts(text));
}

TEST_CASE("integers and numbers lie within their bounds") {
  for (int min = -120; min <= 120; min += 7) {
    for (int max = min; max <= 130; max += 13) {
      NumberRange range;
      range.at_least(Decimal(min), false);
      range.at_most(Decimal(max), true);
      const auto integers = integer_text(range);
      const auto numbers = number_text(range);
      CHECK(integers.has_value() == (min < max));
      if (!integers || !numbers) continue;
      using Match = TextAutomaton::Match;
      const auto whole =
          TextAutomaton::make(*integers, Match::kWhole, TextAutomaton::Reading::kSurely);
      const auto any =
          TextAutomaton::make(*numbers, Match::kWhole, TextAutomaton::Reading::kSurely);
      for (int value = -140; value <= 140; ++value) {
        CHECK(whole->accepts(std::to_string(value)) == (value >= min && value < max));
        const Decimal half = Decimal::parse(std::to_string(value) + ".5");
        CHECK(any->accepts(std::to_string(value) + ".5") == range.has(half));
      }
    }
  }
}

TEST_CASE("decimals are exact") {
  CHECK(Decimal::parse("1.50e2") == Decimal(150));
  CHECK(Decimal::parse("-0.0") == Decimal(0));
  CHECK(Decimal::parse("1e-3") < Decimal::parse("0.0011"));
  CHECK(Decimal::parse("-2.5").floor() == Decimal(-3));
  CHECK(Decimal::parse("-2.5").ceiling() == Decimal(-2));
  CHECK(Decimal(-1).plus_one() == Decimal(0));
  CHECK(Decimal(99).plus_one() == Decimal(100));
  CHECK(Decimal(-100).plus_one() == Decimal(-99));
}

}  // namespace
}  // namespace troupe
