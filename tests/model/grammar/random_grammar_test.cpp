// Random small grammars under random small vocabularies, beside Earley's recogniser.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_matcher.h"
#include "model/grammar/token_trie.h"
#include "tests/model/grammar/earley.h"

namespace troupe {
namespace {

class RandomGrammar {
 public:
  explicit RandomGrammar(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }

  std::string text() {
    rules_ = 1 + below(3);
    std::string text;
    for (std::size_t rule = 0; rule < rules_; ++rule) {
      text += name(rule) + " ::= " + choice(2);
      if (below(3) == 0) text += "\n  | " + sequence(1);
      text += "\n";
    }
    return text;
  }

  /// Rules that begin with counted parts, which begin with the rules.
  std::string circles() {
    rules_ = 1 + below(3);
    std::string text;
    for (std::size_t rule = 0; rule < rules_; ++rule) {
      text += name(rule) + " ::= (";
      for (std::size_t more = 1 + below(3); more > 0; --more) text += beginning(rule) + " | ";
      const std::string ends[] = {"[ab]*)", "\"a\")", "[ab]* (\"ca\")?)"};
      text += ends[below(3)];
      const std::string times[] = {"+", "*", "{2,}", "{1,3}"};
      text += times[below(4)] + (below(2) == 0 ? " \"c\"" : "") + " | \"b\"\n";
    }
    return text;
  }

  std::vector<std::string> vocabulary() {
    static const std::vector<std::string> kPieces = {
        "a", "b", "ab", "\"", "\xC3", "\xA9", "\xC3\xA9", "c", "aa", "\xF0\x9F", "ba", " "};
    std::vector<std::string> tokens(12 + below(12));
    for (std::string& token : tokens) {
      const std::size_t pieces = below(5);
      for (std::size_t i = 0; i < pieces; ++i) token += kPieces[below(kPieces.size())];
    }
    return tokens;
  }

 private:
  std::string name(std::size_t rule) { return rule == 0 ? "root" : "r" + std::to_string(rule); }

  /// Some are too long to be written out once for each run.
  std::string beginning(std::size_t rule) {
    static const std::string kLong = "\"" + std::string(70, 'a') + "\"";
    std::string text = below(4) == 0 ? "[ab]*" : name(below(2) == 0 ? rule : below(rules_));
    return text + (below(2) == 0 ? " " + kLong : below(2) == 0 ? " \"b\"" : "");
  }

  std::string choice(int depth) {
    std::string text = sequence(depth);
    for (std::size_t more = below(2); more > 0; --more) text += " | " + sequence(depth);
    return text;
  }

  std::string sequence(int depth) {
    std::string text;
    for (std::size_t parts = below(4); parts > 0; --parts) text += repeated(depth) + " ";
    return text;
  }

  std::string repeated(int depth) {
    const std::string text = item(depth);
    switch (below(9)) {
      case 0:
        return text + "?";
      case 1:
        return text + "*";
      case 2:
        return text + "+";
      case 3: {
        const std::size_t min = below(3);
        return text + "{" + std::to_string(min) + "," + std::to_string(min + below(3)) + "}";
      }
      case 4: {
        // Long enough to be counted rather than written out.
        const std::string counts[] = {"{0,40}", "{2,60}", "{3,}", "{70,}", "{1,130}", "{5,35}"};
        return below(3) == 0 ? text + counts[below(6)] : text;
      }
      default:
        return text;
    }
  }

  std::string item(int depth) {
    static const std::vector<std::string> kClasses = {
        "[ab]", "[^a]", ".", "[a-c\xC3\xA9]", "[^\"\\\\]", "[\\U0001F600-\\U0001F64F]"};
    static const std::vector<std::string> kLiterals = {"\"a\"",   "\"ab\"",       "\"b\"",   "\"\"",
                                                       "\"aba\"", "\"\xC3\xA9\"", "\"\\\"\""};
    switch (below(depth > 0 ? 8 : 6)) {
      case 0:
      case 1:
        return kLiterals[below(kLiterals.size())];
      case 2:
        return kClasses[below(kClasses.size())];
      case 3:
      case 4:
        return name(below(rules_));
      case 5:
        return below(3) == 0 ? "<[" + std::to_string(below(20)) + "]>" : "\"a\"";
      default:
        return "(" + choice(depth - 1) + ")";
    }
  }

  std::mt19937_64 random_;
  std::size_t rules_ = 1;
};

/// One answer, each mask compared; how many tokens it has.
std::size_t compare_answer(const grammar::ParsedGrammar& parsed,
                           const std::shared_ptr<const CompiledGrammar>& compiled,
                           const std::vector<std::string>& tokens, RandomGrammar& random) {
  const std::vector<std::string_view> texts(tokens.begin(), tokens.end());
  const auto trie = TokenTrie::make(texts, static_cast<TokenId>(tokens.size()));
  GrammarMatcher matcher(compiled, trie);
  grammar::Earley earley(parsed);
  for (std::size_t length = 0; length < 10; ++length) {
    REQUIRE(matcher.complete() == earley.complete());
    if (earley.items() > 150) return length;  // it is slow
    std::vector<std::uint32_t> bits((tokens.size() + 31) / 32);
    matcher.allowed(bits);
    std::vector<TokenId> possible;
    for (TokenId id = 0; id < static_cast<TokenId>(tokens.size()); ++id) {
      const bool allowed = (bits[id / 32] >> (id % 32) & 1) != 0;
      CAPTURE(id);
      CAPTURE(tokens[id]);
      CAPTURE(length);
      REQUIRE(allowed == earley.viable(id, tokens[id]));
      if (allowed) {
        possible.push_back(id);
      } else {
        REQUIRE_FALSE(matcher.accept(id));
      }
    }
    if (possible.empty()) return length;
    const TokenId next = possible[random.below(possible.size())];
    REQUIRE(matcher.accept(next));
    earley.accept(next, tokens[next]);
  }
  return 10;
}

/// How many grammars match anything, and how long their answers are together.
struct Compared {
  std::size_t grammars = 0, tokens = 0;
};

Compared compare_grammars(std::string (RandomGrammar::*text_of)(), std::uint64_t seeds) {
  Compared compared;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    RandomGrammar random(seed);
    const std::string text = (random.*text_of)();
    CAPTURE(seed);
    CAPTURE(text);
    const auto parsed = grammar::parse_grammar(text);
    REQUIRE(parsed.ok());
    const auto compiled = CompiledGrammar::compile(text);
    REQUIRE(compiled.ok() == grammar::Earley(*parsed).productive());
    if (!compiled.ok()) continue;
    ++compared.grammars;
    const std::vector<std::string> tokens = random.vocabulary();
    for (int answer = 0; answer < 2; ++answer)
      compared.tokens += compare_answer(*parsed, *compiled, tokens, random);
  }
  return compared;
}

}  // namespace

TEST_CASE("random grammars allow what Earley's recogniser allows") {
  const Compared compared = compare_grammars(&RandomGrammar::text, 600);
  CHECK(compared.grammars > 400);
  CHECK(compared.tokens > 2000);
}

TEST_CASE("rules and counted parts that begin with each other, too") {
  const Compared compared = compare_grammars(&RandomGrammar::circles, 150);
  CHECK(compared.grammars > 100);
  CHECK(compared.tokens > 500);
}

}  // namespace troupe
