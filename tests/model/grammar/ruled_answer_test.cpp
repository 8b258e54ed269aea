#include "model/grammar/ruled_answer.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "model/grammar/answer_grammars.h"

namespace troupe {
namespace {

/// Tokens 0 to 9 are digits; the others as they are named here.
constexpr TokenId kEnd = 10, kThink = 11, kUnthink = 12, kPartOne = 13, kPartTwo = 14, kWords = 15;

std::shared_ptr<const Vocabulary> vocabulary() {
  std::vector<std::string> texts;
  for (char c = '0'; c <= '9'; ++c) texts.emplace_back(1, c);
  for (const char* text : {"</s>", "<think>", "</think>", "</th", "ink>!"})
    texts.emplace_back(text);
  std::vector<bool> special(kWords);
  special[kEnd] = true;
  return Vocabulary::make(std::move(texts), special, 40);
}

template <class Fill>
RuledAnswer answer_under(Fill fill) {
  TokenRules rules;
  fill(rules);
  rules.end_tokens = {kEnd};
  std::shared_ptr<const CompiledGrammar> grammar;
  if (!rules.grammar.empty()) grammar = CompiledGrammar::compile(rules.grammar).value();
  return RuledAnswer(std::make_shared<const TokenRules>(std::move(rules)), grammar, vocabulary());
}

/// The tokens that may come next.
std::vector<TokenId> allowed(RuledAnswer& answer) {
  std::vector<std::uint32_t> bits(2, 0xa5a5a5a5);
  const bool any = answer.allowed(bits, 40);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < 64; ++id)
    if (bits[static_cast<std::size_t>(id) / 32] >> id % 32 & 1) ids.push_back(id);
  CHECK(any == !ids.empty());
  return ids;
}

using Ids = std::vector<TokenId>;

Ids all_but(TokenId left_out) {
  Ids ids;
  for (TokenId id = 0; id < 40; ++id)
    if (id != left_out) ids.push_back(id);
  return ids;
}

TEST_CASE("an answer ends where its grammar may, and nowhere else") {
  RuledAnswer answer = answer_under([](TokenRules& r) { r.grammar = "root ::= [1-3] [4-5]?"; });
  CHECK(answer.limits());
  CHECK(allowed(answer) == Ids{1, 2, 3});
  answer.take(2);
  CHECK(allowed(answer) == Ids{4, 5, kEnd});
  answer.take(5);
  CHECK(allowed(answer) == Ids{kEnd});
  answer.take(kEnd);
  CHECK(allowed(answer) == Ids{kEnd});  // it goes on for those who ignore its end
}

TEST_CASE("tokens that the grammar does not have leave the answer without a next one") {
  RuledAnswer answer = answer_under([](TokenRules& r) { r.grammar = "root ::= [1-3]+"; });
  answer.take(1);
  answer.take(7);
  CHECK(allowed(answer).empty());
}

TEST_CASE("the grammar begins after the thought, which does not end the answer") {
  RuledAnswer answer = answer_under([](TokenRules& r) {
    r.grammar = "root ::= [1-3]";
    r.grammar_after = {"</think>"};
  });
  for (const TokenId token : {7, kPartOne, kPartOne}) {
    CHECK(allowed(answer) == all_but(kEnd));
    answer.take(token);
  }
  SUBCASE("in one token") { answer.take(kUnthink); }
  SUBCASE("in two, the second of which says more") { answer.take(kPartTwo); }
  CHECK(allowed(answer) == Ids{1, 2, 3});
  answer.take(3);
  CHECK(allowed(answer) == Ids{kEnd});
}

TEST_CASE("a token that the grammar begins with ends the thought, too") {
  const auto rules = [](TokenRules& r) {
    r.grammar = "root ::= [1-3] | <[20]> [4-5]";
    r.grammar_after = {"</think>"};
    r.grammar_token = 20;
  };
  RuledAnswer calls = answer_under(rules);
  for (const TokenId token : {7, kPartOne, 20}) {
    CHECK(allowed(calls) == all_but(kEnd));
    calls.take(token);
  }
  CHECK(allowed(calls) == Ids{4, 5});
  calls.take(4);
  CHECK(allowed(calls) == Ids{kEnd});
  RuledAnswer answers = answer_under(rules);
  answers.take(kUnthink);
  CHECK(allowed(answers) == Ids{1, 2, 3, 20});
  // It is a part of the thought if the grammar has no place for it.
  RuledAnswer other = answer_under([&](TokenRules& r) {
    rules(r);
    r.grammar = "root ::= [1-3]";
  });
  other.take(20);
  CHECK(allowed(other) == all_but(kEnd));
}

TEST_CASE("a model may think first, or answer at once") {
  const auto rules = [](TokenRules& r) {
    r.grammar = "root ::= [1-3]";
    r.grammar_after = {"</think>"};
    r.thought_token = kThink;
  };
  RuledAnswer thinks = answer_under(rules);
  CHECK(allowed(thinks) == Ids{1, 2, 3, kThink});
  thinks.take(kThink);
  CHECK(allowed(thinks) == all_but(kEnd));
  thinks.take(kUnthink);
  CHECK(allowed(thinks) == Ids{1, 2, 3});
  RuledAnswer answers = answer_under(rules);
  answers.take(1);
  CHECK(allowed(answers) == Ids{kEnd});
}

TEST_CASE("an answer is as long as it must be") {
  RuledAnswer answer = answer_under([](TokenRules& r) { r.min_tokens = 2; });
  CHECK(allowed(answer) == all_but(kEnd));
  answer.take(1);
  CHECK(answer.limits());
  answer.take(1);
  CHECK_FALSE(answer.limits());
  // A grammar that can say no more ends it sooner.
  RuledAnswer short_one = answer_under([](TokenRules& r) {
    r.grammar = "root ::= [1-3] [4-5]?";
    r.min_tokens = 5;
  });
  short_one.take(1);
  CHECK(allowed(short_one) == Ids{4, 5});
  short_one.take(4);
  CHECK(allowed(short_one) == Ids{kEnd});
}

TEST_CASE("some tokens are allowed, and some words are not") {
  RuledAnswer some = answer_under([](TokenRules& r) { r.allowed = {2, 4, kEnd}; });
  CHECK(allowed(some) == Ids{2, 4, kEnd});
  RuledAnswer without = answer_under([](TokenRules& r) {
    r.allowed = {2, 4, 6};
    r.banned = {{6}, {2, 2, 4}};
  });
  CHECK(allowed(without) == Ids{2, 4});
  without.take(2);
  CHECK(allowed(without) == Ids{2, 4});
  without.take(2);
  CHECK(allowed(without) == Ids{2});
  without.take(2);
  CHECK(allowed(without) == Ids{2});
  without.take(4);
  CHECK(allowed(without) == Ids{2, 4});
}

TEST_CASE("a grammar may begin after several texts") {
  RuledAnswer answer = answer_under([](TokenRules& r) {
    r.grammar = "root ::= [1-3]";
    r.grammar_after = {"</th", "9"};
  });
  for (const TokenId token : {9, 1, kPartOne, 1, 1}) {
    answer.take(token);
    CHECK(allowed(answer) == all_but(kEnd));
  }
  answer.take(9);
  CHECK(allowed(answer) == Ids{1, 2, 3});
}

TEST_CASE("a token that ends answers may be the only one that the grammar has") {
  RuledAnswer answer =
      answer_under([](TokenRules& r) { r.grammar = "root ::= \"1\" <[10]> \"2\""; });
  answer.take(1);
  CHECK(allowed(answer) == Ids{kEnd});
}

TEST_CASE("grammars are compiled once, and those used last are kept") {
  AnswerGrammars grammars(vocabulary());
  const auto first = grammars.begin("root ::= \"a\"").get();
  REQUIRE(first.ok());
  CHECK(*grammars.begin("root ::= \"a\"").get() == *first);
  for (int i = 0; i < 200; ++i) {
    CHECK(grammars.begin("root ::= \"" + std::to_string(i) + "\"").get().ok());
    if (i % 10 == 0) CHECK(*grammars.begin("root ::= \"a\"").get() == *first);
  }
  std::weak_ptr<const CompiledGrammar> zero = *grammars.begin("root ::= \"0\"").get();
  CHECK(zero.lock() == *grammars.begin("root ::= \"0\"").get());
  for (int i = 0; i < 64; ++i)
    (void)grammars.begin("root ::= [0-9]{" + std::to_string(i + 1) + "}").get();
  CHECK(zero.expired());
  CHECK_FALSE(grammars.begin("root ::= nowhere").get().ok());
}

TEST_CASE("large grammars leave when their bytes are too many") {
  const auto large = [](char letter) {
    std::string text = "root ::= \"x\"";
    for (int i = 0; i < 3000; ++i) text += std::string(" | \"") + letter + std::to_string(i) + "\"";
    return text;
  };
  const std::size_t bytes = (*CompiledGrammar::compile(large('a')))->bytes();
  AnswerGrammars grammars(vocabulary(), 5 * (bytes + large('a').size()) / 2);
  const auto held = [&](char letter) -> std::weak_ptr<const CompiledGrammar> {
    return *grammars.begin(large(letter)).get();
  };
  const auto a = held('a'), b = held('b'), c = held('c');
  CHECK_FALSE(b.expired());
  const auto d = held('d');
  CHECK(a.expired());
  CHECK_FALSE(c.expired());
  CHECK_FALSE(d.expired());
}

}  // namespace
}  // namespace troupe
