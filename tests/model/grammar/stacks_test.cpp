#include "model/grammar/stacks.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/compiled_grammar_impl.h"
#include "tests/model/grammar/answers.h"

namespace troupe {
namespace {

using grammar::Item;
using grammar::Items;
using grammar::Stacks;

/// Stacks of a grammar, and where an answer stands on them.
struct Place {
  explicit Place(std::string_view text)
      : grammar(*CompiledGrammar::compile(text)), stacks(grammar->impl().automaton) {
    const Item start{grammar->impl().automaton.callees[0].start, Stacks::kEnd};
    at = stacks.close({&start, 1});
  }
  void read(std::string_view text) {
    for (const char c : text) at = stacks.step(at.items, static_cast<std::uint8_t>(c));
  }

  std::shared_ptr<const CompiledGrammar> grammar;
  Stacks stacks;
  Items at;
};

/// `a` is entered at the beginning with two ways on, and with three others behind a bracket; the
/// first is the same.
constexpr std::string_view kTwoEntries = R"(root ::= "("? a "1" | r | "(" q | "(" s
a ::= "("* "x"
r ::= a "3" | "r" r
q ::= a "2" | "q" q
s ::= a "4" | "s" s
)";

}  // namespace

TEST_CASE("a graph that was rewound is as if nothing had been made since") {
  Place place("root ::= \"a\"");
  Stacks& stacks = place.stacks;
  const std::uint32_t counted = stacks.make(0, 1, 70, {3, Stacks::kEnd});
  const Stacks::Mark before = stacks.mark();
  const std::uint32_t plain = stacks.without_counts(counted);
  CHECK(plain != counted);
  stacks.rewind(before);
  // Another node takes the place of what was forgotten.
  CHECK(stacks.make(0, 2, 2, {5, Stacks::kPop}) == plain);
  const std::uint32_t again = stacks.without_counts(counted);
  CHECK(again != plain);
  CHECK(stacks.node(again).max_left == Stacks::kMany);
  CHECK(stacks.edges(again)[0] == Item{3, Stacks::kEnd});
}

TEST_CASE("a wide node that was forgotten widens nothing") {
  Place place(kTwoEntries);
  const Stacks::Mark before = place.stacks.mark();
  const std::size_t bytes = place.stacks.bytes();
  CHECK(place.stacks.widest() == 2);
  const Items start = place.at;
  place.read("(");
  CHECK(place.stacks.widest() == 3);
  place.stacks.rewind(before);
  CHECK(place.stacks.widest() == 2);
  CHECK(place.stacks.bytes() == bytes);
  // As after any number of refused tokens.
  for (int i = 0; i < 1000; ++i) place.stacks.make(0, 1, 1, {static_cast<std::uint32_t>(i), 1});
  place.stacks.rewind(before);
  CHECK(place.stacks.bytes() == bytes);
  place.at = start;
  place.read("((x");
  CHECK(place.at.items.size() == 4);
}

TEST_CASE("ways that differ in what was cut off alone are one") {
  Place place(kTwoEntries);
  place.read("(");
  const std::size_t before = place.at.items.size();
  const auto standing = [&](std::uint32_t callee) {
    std::size_t count = 0;
    for (const Item& item : place.at.items)
      count += item.node > Stacks::kEnd && place.stacks.node(item.node).callee == callee;
    return count;
  };
  std::uint32_t callee = 0;
  while (standing(callee) != 2) REQUIRE(++callee < 100);
  place.stacks.compact(place.at.items, 1);
  CHECK(place.at.items.size() == before - 1);
  CHECK(standing(callee) == 1);
  place.read("x1");
  CHECK(place.at.ended);
}

TEST_CASE("of two ways that say the same one stays") {
  // The counted part and the rule are one circle where they begin. A run more, which may be
  // nothing, stands on that circle and says what the part itself does.
  const std::string part(70, '-');
  const std::string counted = R"(root ::= (root "x" | [ab]*){70,} ";" | "z")";
  const std::string long_runs = "root ::= (root \"" + part + "\" | [ab]*)+ \";\" | \"z\"";
  // A run that is half read has no way on but its own.
  const std::string halves = R"(root ::= (root "x" | [ab]* ("cd")?){70,} ";" | "z")";
  const std::string lost = R"(root ::= (root | r "x" | "a"){1,} "y" | "z"
r ::= (r "c"? | "a"* ("cd")?){70,} ";" | "z")";
  const std::string two_rules = R"(root ::= (s "x" | "a"* "b"?){70,} ";" | "z"
s ::= root "y" | root "x" | "s")";
  struct Case {
    std::string grammar, text;
  };
  for (const auto& [grammar, text] : std::vector<Case>{{counted, ";"},
                                                       {counted, "a;"},
                                                       {counted, "abab;"},
                                                       {counted, "ab;xab;"},
                                                       {counted, "zxaaa;xb;"},
                                                       {halves, "acd;"},
                                                       {halves, "abcdbcd;"},
                                                       {halves, "zxacd;"},
                                                       {lost, "cd;ca;xy"},
                                                       {lost, "cd;ca;ca;xay"},
                                                       {long_runs, "aa;"},
                                                       {long_runs, "aa;" + part + "bb;"},
                                                       {two_rules, "aab;"},
                                                       {two_rules, "aa;yxaab;"},
                                                       {two_rules, "zyxaaaa;xxb;"}}) {
    CAPTURE(grammar);
    CAPTURE(text);
    Place place(grammar);
    place.read(text);
    CHECK(place.at.ended);
  }
}

}  // namespace troupe
