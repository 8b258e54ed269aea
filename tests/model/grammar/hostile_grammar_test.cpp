// Grammars made to take long, and long answers.
#include <doctest/doctest.h>
#include <ctime>

#include <algorithm>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "model/grammar/compiled_grammar_impl.h"
#include "model/grammar/stacks.h"
#include "tests/model/grammar/answers.h"

namespace troupe {
namespace {

std::shared_ptr<const CompiledGrammar> compiled_grammar(const std::string& text) {
  auto compiled = CompiledGrammar::compile(text);
  REQUIRE_MESSAGE(compiled.ok(), compiled.error().message);
  return *compiled;
}

/// The stacks after a text, and how many items.
struct Standing {
  std::size_t items = 0;
  std::uint32_t groups = 0;
  bool ended = false;
};

Standing standing_after(const std::string& grammar, std::string_view text) {
  const auto compiled = compiled_grammar(grammar);
  const auto& automaton = compiled->impl().automaton;
  grammar::Stacks stacks(automaton);
  const grammar::Item start{automaton.callees[0].start, grammar::Stacks::kEnd};
  grammar::Items at = stacks.close({&start, 1});
  for (const char c : text) at = stacks.step(at.items, static_cast<std::uint8_t>(c));
  return {at.items.size(), stacks.mark().groups, at.ended};
}

}  // namespace

TEST_CASE("ambiguous and recursive grammars need no more for a longer text") {
  const std::string many(2000, 'a');
  for (const char* grammar :
       {"root ::= root root | \"a\"", "root ::= root root | \"a\" | \"\"",
        "root ::= root \"a\" | \"\"", "root ::= \"a\" root | \"\"", "root ::= (\"a\"* | root)*",
        "root ::= ((\"a\"*)*)*", "root ::= s\ns ::= t s | t\nt ::= s t | \"a\"",
        "root ::= (\"a\" | \"aa\"){0,9000}", "root ::= (\"a\" | \"aa\" | \"aaa\"){500,}",
        "root ::= a\na ::= b | \"\"\nb ::= a | \"a\" b | b \"a\""}) {
    CAPTURE(grammar);
    const Standing short_text = standing_after(grammar, std::string_view(many).substr(0, 20));
    const Standing long_text = standing_after(grammar, many);
    CHECK((long_text.ended || std::string(grammar).find("500") != std::string::npos));
    CHECK(long_text.items <= short_text.items + 2);
    CHECK(long_text.groups < 2 * many.size() + 100);  // counts are nodes of their own
  }
}

TEST_CASE("what must grow with the text grows by as much a byte") {
  const std::string many(3000, 'a');
  const Standing at = standing_after("root ::= \"a\" root \"a\" | \"\"", many);
  CHECK(at.ended);
  CHECK(at.items < many.size() + 10);
  CHECK(at.groups < 2 * many.size());
}

TEST_CASE("an answer that can be read in ever more ways is followed in some of them") {
  for (const char* grammar : {"root ::= root root root | root root | \"a\" | root",
                              "root ::= \"a\" root \"a\" | root root | \"\"",
                              "root ::= x{3,900}\nx ::= root? [ab]{1,40} x? | \"a\""}) {
    CAPTURE(grammar);
    GrammarMatcher matcher(compiled_grammar(grammar), byte_vocabulary({"aaaa"}));
    for (int i = 0; i < 150; ++i) REQUIRE(matcher.accept(i % 2 == 0 ? 256 : 'a'));
  }
}

TEST_CASE("deep nesting is taken and left") {
  const auto compiled = compiled_grammar("root ::= \"[\" root? \"]\" | \"{\" root \"}\"");
  GrammarMatcher matcher(compiled, byte_vocabulary({"[[[[[[[[", "]]]]]]]]"}));
  for (int i = 0; i < 2000; ++i) REQUIRE(matcher.accept(256));
  CHECK_FALSE(matcher.accept('}'));
  for (int i = 0; i < 2000; ++i) REQUIRE(matcher.accept(257));
  CHECK(matcher.complete());
  CHECK_FALSE(matcher.accept(']'));
}

TEST_CASE("large grammars compile in proportion to their text") {
  std::string choices = "root ::= \"x\"";
  for (int i = 0; i < 10000; ++i)
    choices += " | \"a common beginning " + std::to_string(i * 7919) + "\"";
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 20000; ++i)
    rules += "r" + std::to_string(i) + " ::= \"a\" r" + std::to_string(i + 1) + "? | \"b\" r" +
             std::to_string(i / 2) + "\n";
  rules += "r20000 ::= \"end\"\n";
  std::string doubling = "root ::= d40\nd0 ::= \"\" | \"a\"\n";
  for (int i = 0; i < 40; ++i) {
    const std::string d = "d" + std::to_string(i);
    doubling += "d" + std::to_string(i + 1) + " ::= " + d + " " + d + "\n";
  }
  std::string chain = "root ::= c0\n";
  for (int i = 0; i < 30000; ++i)
    chain += "c" + std::to_string(i) + " ::= c" + std::to_string(i + 1) + " \"x\"\n";
  chain += "c30000 ::= \"y\"\n";
  std::string words = "root ::= (\"w\"";
  for (int i = 0; i < 3000; ++i) words += " | \"" + std::to_string(i * 31) + "\"";
  words += ")*";
  for (const std::string& text :
       {"root ::= \"" + std::string(1 << 20, 'x') + "\"", choices, rules, doubling, chain, words,
        std::string("root ::= ((((.{0,1000}){0,1000}){0,1000}){0,1000}){1000000000}"),
        std::string("root ::= (((\"\"?)*)+){0,1000000000}"),
        "root ::= " + std::string(100, '(') + "\"a\"?" + std::string(100, ')') + "*"}) {
    CAPTURE(text.substr(0, 60));
    const auto compiled = compiled_grammar(text);
    CHECK(compiled->bytes() < 64 * text.size() + 100000);
    GrammarMatcher matcher(compiled, byte_vocabulary());
    allowed_tokens(matcher, 256);
  }
}

/// Of the processor, which others may use as well: what it takes to compile many rules, of which
/// each has 2^bits states of its own.
double seconds_of_rules(int bits) {
  std::string text = "root ::= \"\"";
  for (int i = 0; i < 10000; ++i) {
    const std::string r = " r" + std::to_string(i);
    text += " |" + r + r;
  }
  for (int i = 0; i < 10000; ++i)
    text += "\nr" + std::to_string(i) + " ::= [ab]* \"a\" [ab]{" + std::to_string(bits) + "} \"c\"";
  const std::clock_t start = std::clock();
  compiled_grammar(text);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST_CASE("what cannot be made deterministic is tried for a while, however many rules there are") {
  const double few = seconds_of_rules(3), many = seconds_of_rules(14);
  CAPTURE(few);
  CAPTURE(many);
  CHECK(many < 8 * few);  // each tried by itself: 25 times as long
}

TEST_CASE("what is too large is refused") {
  CHECK(
      CompiledGrammar::compile(std::string(CompiledGrammar::kTextBytesMax + 1, ' ')).error().code ==
      ErrorCode::kInvalidArgument);
  std::string text = "root ::= big";
  for (int i = 0; i < 200000; ++i) text += " big";
  text += "\nbig ::= \"" + std::string(40, 'x') + "\"";
  const auto compiled = CompiledGrammar::compile(text);
  REQUIRE_FALSE(compiled.ok());
  CHECK(compiled.error().code == ErrorCode::kResourceExhausted);
}

/// Rules that begin with each other, all in one circle.
std::string left_recursive(int rules) {
  std::string text = "root ::= r0\n";
  for (int i = 0; i < rules; ++i)
    text += "r" + std::to_string(i) + " ::= r" + std::to_string((i + 1) % rules) + " \"" +
            std::to_string(i) + "\" | [a-z .,]+\n";
  return text;
}

TEST_CASE("rules that begin with each other are a thousand at most") {
  const auto most = static_cast<int>(CompiledGrammar::kLeftRecursionMax);
  for (const std::string& text :
       {left_recursive(most + 1), left_recursive(100'000),
        // What comes before the call may be nothing.
        std::regex_replace(left_recursive(most + 1), std::regex("::= r"), "::= \"x\"* r")}) {
    const auto compiled = CompiledGrammar::compile(text);
    REQUIRE_FALSE(compiled.ok());
    CHECK(compiled.error().code == ErrorCode::kResourceExhausted);
    CHECK(compiled.error().message.find("left recursion") != std::string::npos);
  }
  GrammarMatcher matcher(compiled_grammar(left_recursive(most)), byte_vocabulary());
  for (const char c : std::string("some text210")) REQUIRE(matcher.accept(c));
  CHECK(matcher.complete());
  // Those that begin with something else may be as many as the text has room for.
  compiled_grammar(std::regex_replace(left_recursive(5000), std::regex("::= r"), "::= \"x\" r"));
}

TEST_CASE("a mask that would cost too much has the short tokens, whatever was asked before") {
  // Each letter makes a place of its own: what was read must be read backwards in the end.
  std::string grammar = "root ::= \"\"";
  for (char c = 'a'; c <= 'z'; ++c) grammar += std::string(" | \"") + c + "\" root \"" + c + "\"";
  std::vector<std::string> long_tokens;
  for (std::uint32_t i = 0; i < 60'000; ++i) {
    std::string text;
    for (std::uint32_t left = i * 2654435761u, k = 0; k < 5; ++k, left /= 26)
      text += static_cast<char>('a' + left % 26);
    long_tokens.push_back(text);
  }
  const auto vocabulary = byte_vocabulary(long_tokens);
  const TokenId size = vocabulary->vocab_size();
  const auto asked = compiled_grammar(grammar);
  GrammarMatcher other(asked, vocabulary);
  REQUIRE(takes(other, "zyxyz"));
  GrammarMatcher first(compiled_grammar(grammar), vocabulary), later(asked, vocabulary);
  for (const char c : std::string("qweewq")) {
    const auto tokens = allowed_tokens(first, size);
    CHECK(tokens == allowed_tokens(later, size));
    CHECK(std::count_if(tokens.begin(), tokens.end(), [](TokenId t) { return t < 256; }) == 26);
    CHECK(tokens.size() < 60'000);
    REQUIRE(first.accept(c));
    REQUIRE(later.accept(c));
  }
  CHECK(first.complete());
}

TEST_CASE("a bounded string ends where it must, however a token would cross that") {
  const auto compiled = compiled_grammar("root ::= \"\\\"\" [^\"\\\\]{0,10000} \"\\\"\" \";\"");
  const auto trie = byte_vocabulary({"aaaaaaaa", "aa\";", "\xC3\xA9\xC3\xA9\xC3\xA9", "\";"});
  GrammarMatcher matcher(compiled, trie);
  REQUIRE(matcher.accept('"'));
  for (int i = 0; i < 1249; ++i) REQUIRE(matcher.accept(256));
  for (int i = 0; i < 6; ++i) REQUIRE(matcher.accept('a'));
  // Two characters are left.
  const auto tokens = allowed_tokens(matcher, trie->vocab_size());
  CHECK(std::vector<TokenId>(tokens.end() - 2, tokens.end()) == std::vector<TokenId>{257, 259});
  REQUIRE(matcher.accept('a'));
  CHECK(matcher.accept(257) == false);
  REQUIRE(takes(matcher, "\xC3\xA9"));
  CHECK(allowed_tokens(matcher, trie->vocab_size()) == std::vector<TokenId>{'"', 259});
}

TEST_CASE("threads that share a grammar find the same masks") {
  const auto compiled = compiled_grammar(
      "root ::= v\nv ::= \"[\" (v (\",\" v)*)? \"]\" | \"\\\"\" [^\"]* \"\\\"\" | [0-9]+");
  const auto trie = byte_vocabulary({"[[", "]]", "\",\"", "12", "3]", "],["});
  std::vector<std::vector<TokenId>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<TokenId>& mine : found) {
    threads.emplace_back([&] {
      GrammarMatcher matcher(compiled, trie);
      for (std::size_t i = 0; i < 200; ++i) {
        const auto tokens = allowed_tokens(matcher, trie->vocab_size());
        if (tokens.empty()) break;
        mine.insert(mine.end(), tokens.begin(), tokens.end());
        matcher.accept(tokens[i * 7919 % tokens.size()]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(found[0].size() > 100);
  for (const auto& other : found) CHECK(other == found[0]);
}

}  // namespace troupe
