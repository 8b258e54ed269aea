// Masks are a function of the grammar and the tokens so far: an answer that goes on elsewhere finds
// the same ones there, whatever was asked of either place before.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/model/grammar/answers.h"

namespace troupe {
namespace {

using Ids = std::vector<TokenId>;

struct Case {
  std::string grammar;
  std::string letters;       ///< what the vocabulary's tokens are made of
  std::size_t tokens = 150;  ///< how many it has beside the bytes
  std::size_t length = 10;   ///< of an answer, at most
};

/// Each letter makes a place of its own: what was read must be read backwards in the end.
std::string mirrored(std::string_view letters) {
  std::string text = "root ::= \"\"";
  for (const char c : letters) text += std::string(" | \"") + c + "\" root \"" + c + "\"";
  return text;
}

/// Rules that begin with each other, all in one circle.
std::string chain(int rules) {
  std::string text = "root ::= r0\n";
  for (int i = 0; i < rules; ++i)
    text += "r" + std::to_string(i) + " ::= r" + std::to_string((i + 1) % rules) + " \"" +
            std::to_string(i % 10) + "\" | [a-c]+\n";
  return text;
}

std::vector<Case> cases() {
  const std::string json =
      "root ::= v\nv ::= \"[\" (v (\",\" v)*)? \"]\" | \"{\" s \":\" v \"}\" | s | [0-9]+ ("
      "\".\" [0-9]+)?\ns ::= \"\\\"\" [^\"\\\\]{0,40} \"\\\"\"";
  return {
      {json, "[]{}\",:1.a"},
      {json, "\"a\xC3\xA9", 150, 40},
      {"root ::= (\"a\" | \"aa\")*", "a"},
      {"root ::= (\"a\" | \"aa\"){0,9000} \";\"", "aaaa;"},
      {"root ::= (\"a\" | \"aa\" | \"aaa\"){50,} \"b\"", "ab"},
      {"root ::= ((\"a\"*)* | \"b\")* \"c\"?", "abc"},
      {"root ::= root root | \"a\" | \"\"", "a"},
      {"root ::= root root root | root root | \"a\" | root", "a"},
      {"root ::= \"a\" root \"a\" | root root | \"\"", "a"},
      {"root ::= s\ns ::= t s | t\nt ::= s t | \"a\" | \"b\"", "ab"},
      {"root ::= (root \"x\" | [ab]*){70,} \";\" | \"z\"", "abx;z"},
      {"root ::= x{3,900}\nx ::= root? [ab]{1,40} x? | \"a\"", "ab"},
      {"root ::= \"[\" root? \"]\" | \"{\" root \"}\" | root \",\" root", "[[[]{},"},
      {chain(12), "abc0123456789"},
      {chain(200), "abc0123456789", 60, 6},
      {mirrored("abcdef"), "abcdef", 400},
      // These masks cost more than they may: which tokens are left out is the same, too.
      {mirrored("abcdefghijklmnopqrstuvwxyz"), "abcdefghijklmnopqrstuvwxyz", 60'000, 4},
  };
}

std::vector<std::string> tokens_of(const Case& of, std::mt19937_64& random) {
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < of.tokens; ++i) {
    std::string& token = tokens.emplace_back();
    for (std::size_t more = 2 + random() % 5; more > 0; --more)
      token += of.letters[random() % of.letters.size()];
  }
  return tokens;
}

std::shared_ptr<const CompiledGrammar> compiled(const Case& of) {
  auto grammar = CompiledGrammar::compile(of.grammar);
  REQUIRE_MESSAGE(grammar.ok(), grammar.error().message);
  return *grammar;
}

/// An answer, and the masks before each of its tokens and behind the last.
struct Answer {
  Ids tokens;
  std::vector<Ids> masks;
  std::vector<bool> complete;
};

void look(GrammarMatcher& matcher, TokenId vocab_size, Answer& answer) {
  answer.masks.push_back(allowed_tokens(matcher, vocab_size));
  answer.complete.push_back(matcher.complete());
}

/// Half of its tokens are long ones, where there are any.
Answer drawn(const Case& of, const std::shared_ptr<const CompiledGrammar>& grammar,
             const std::shared_ptr<const TokenTrie>& trie, std::mt19937_64& random) {
  GrammarMatcher matcher(grammar, trie);
  Answer answer;
  look(matcher, trie->vocab_size(), answer);
  while (answer.tokens.size() < of.length && !answer.masks.back().empty()) {
    const Ids& mask = answer.masks.back();
    const auto longer = static_cast<std::size_t>(
        std::count_if(mask.begin(), mask.end(), [](TokenId id) { return id >= 256; }));
    const bool draws_longer = longer > 0 && random() % 2 == 0;
    const TokenId token =
        draws_longer ? mask[mask.size() - 1 - random() % longer] : mask[random() % mask.size()];
    if (!matcher.accept(token)) break;  // read in more ways than can be followed
    answer.tokens.push_back(token);
    look(matcher, trie->vocab_size(), answer);
  }
  return answer;
}

/// Follows it by its tokens. `asks`: for each mask, else for the last one alone. `tries`: tokens
/// that cannot come, before each of its own.
void check_followed(const Answer& answer, const std::shared_ptr<const CompiledGrammar>& grammar,
                    const std::shared_ptr<const TokenTrie>& trie, bool asks, bool tries) {
  GrammarMatcher matcher(grammar, trie);
  for (std::size_t i = 0; i <= answer.tokens.size(); ++i) {
    CAPTURE(i);
    const bool last = i == answer.tokens.size();
    REQUIRE(matcher.complete() == answer.complete[i]);
    if (asks || last) REQUIRE(allowed_tokens(matcher, trie->vocab_size()) == answer.masks[i]);
    for (TokenId id = 0; tries && id < trie->vocab_size(); id += 1 + trie->vocab_size() / 16) {
      if (!std::binary_search(answer.masks[i].begin(), answer.masks[i].end(), id))
        REQUIRE_FALSE(matcher.accept(id));
    }
    if (!last) REQUIRE(matcher.accept(answer.tokens[i]));
  }
}

}  // namespace

TEST_CASE("masks are the same from cold caches and from those that others have warmed") {
  std::mt19937_64 random(7);
  for (const Case& of : cases()) {
    CAPTURE(of.grammar.substr(0, 80));
    CAPTURE(of.letters);
    const auto trie = byte_vocabulary(tokens_of(of, random));
    std::vector<Answer> answers;  // each from a cache of its own
    for (int i = 0; i < 2; ++i) answers.push_back(drawn(of, compiled(of), trie, random));
    const auto shared = compiled(of);
    for (int round = 0; round < 2; ++round) {
      std::shuffle(answers.begin(), answers.end(), random);
      for (const Answer& answer : answers) check_followed(answer, shared, trie, true, round == 1);
    }
    // Nothing but the tokens, as where an answer comes to that began elsewhere.
    for (const Answer& answer : answers) {
      check_followed(answer, shared, trie, false, false);
      check_followed(answer, compiled(of), trie, false, true);
    }
  }
}

}  // namespace troupe
