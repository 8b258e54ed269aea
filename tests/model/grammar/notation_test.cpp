// What each piece of the notation matches, and what is said of text that is none.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/model/grammar/answers.h"

namespace troupe {
namespace {

bool matches(const std::string& grammar, std::string_view text) {
  CAPTURE(grammar);
  const auto compiled = CompiledGrammar::compile(grammar);
  REQUIRE_MESSAGE(compiled.ok(), compiled.error().message);
  GrammarMatcher matcher(*compiled, byte_vocabulary());
  return takes(matcher, text) && matcher.complete();
}

struct NotationCase {
  std::string grammar;
  std::vector<std::string> yes, no;
};

}  // namespace

TEST_CASE("each notation matches what it says") {
  const std::vector<NotationCase> cases = {
      {"root ::= \"abc\"", {"abc"}, {"", "ab", "abcd", "b"}},
      {R"(root ::= "\n\t\r\\\"\x41\u00e9\U0001F600")",
       {"\n\t\r\\\"A\xC3\xA9\xF0\x9F\x98\x80"},
       {"n"}},
      {R"(root ::= "\uD83D\uDE00")", {"\xF0\x9F\x98\x80"}, {}},
      {R"(root ::= "\x80")", {"\xC2\x80"}, {"\x80"}},
      {"root ::= \"\"", {""}, {"a"}},
      {"root ::=", {""}, {"a"}},
      {"root ::= \"a\" | ", {"", "a"}, {"aa"}},
      {"root ::= | \"a\"", {"", "a"}, {"aa"}},
      {"root ::= [a-c_]", {"a", "b", "c", "_"}, {"d", "", "ab"}},
      {"root ::= [^a-c]",
       {"d", "\xC3\xA9", "\xF4\x8F\xBF\xBF", "\n"},
       {"a", "\xED\xA0\x80", "\xC3"}},
      {"root ::= [a-]", {"a", "-"}, {"b"}},
      {R"(root ::= [\]\\\-\^"])", {"]", "\\", "-", "^", "\""}, {"a"}},
      {"root ::= [\xC3\xA9-\xE6\x98\xAF]",
       {"\xC3\xA9", "\xE6\x98\xAF", "\xD0\x96"},
       {"\xC3\xA8", "\xE6\x98\xB0"}},
      {"root ::= .",
       {"a", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80"},
       {"", "ab", "\xC0\x80", "\xF5\x80\x80\x80"}},
      {"root ::= (\"a\" | \"b\") \"c\"", {"ac", "bc"}, {"abc", "c"}},
      {"root ::= \"a\"?", {"", "a"}, {"aa"}},
      {"root ::= \"a\"*", {"", "a", "aaaaaaaaaa"}, {"ab"}},
      {"root ::= \"a\"+", {"a", "aaa"}, {""}},
      {"root ::= \"a\"{3}", {"aaa"}, {"aa", "aaaa"}},
      {"root ::= \"a\"{2,}", {"aa", "aaaaaa"}, {"a"}},
      {"root ::= \"a\"{2,4}", {"aa", "aaa", "aaaa"}, {"a", "aaaaa"}},
      {"root ::= \"a\"{0}", {""}, {"a"}},
      {"root ::= \"a\" { 1 , 2 }", {"a", "aa"}, {"aaa"}},
      {"root ::= [a-z\xC3\xA9]{100,300}",
       {std::string(100, 'x'), std::string(300, 'x')},
       {std::string(99, 'x'), std::string(301, 'x')}},
      {"root ::= (\"ab\"{2}){2}", {"abababab"}, {"abab"}},
      {"root ::= a b # comment \"x\"\n# more\na ::= \"1\" b ::= \"2\"", {"12"}, {"1", "x"}},
      {"root ::=\n  a\n  | b\na ::= \"1\"\n\nb ::= \"2\"", {"1", "2"}, {"12"}},
      {"root ::= (\n\"a\"\n|\n\"b\"\n)\n", {"a", "b"}, {}},
      {"root ::= A-b_3\nA-b_3 ::= \"x\"", {"x"}, {}},
      {"root::=\"a\"root|\"b\"", {"b", "aaab"}, {"a"}},
      {"root ::= \"a\" dead | \"b\" | dead?\ndead ::= \"x\" dead", {"b", ""}, {"a", "ax", "x"}}};
  for (const NotationCase& c : cases) {
    for (const std::string& text : c.yes) {
      CAPTURE(text);
      CHECK(matches(c.grammar, text));
    }
    for (const std::string& text : c.no) {
      CAPTURE(text);
      CHECK_FALSE(matches(c.grammar, text));
    }
  }
}

TEST_CASE("text that is no grammar is refused with its place and what to do") {
  const std::string deep = "root ::= " + std::string(200, '(') + "\"a\"" + std::string(200, ')');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "there must be a rule called root"},
      {"a ::= \"x\"", "there must be a rule called root"},
      {"root ::= a", "line 1, column 10: the rule a is used, but defined nowhere"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: the rule root is defined twice"},
      {"root \"a\"", "line 1, column 1: expected a rule"},
      {"root ::= \"a\n", "line 1, column 10: a literal without its closing \""},
      {"root ::= [a", "a class without its closing ]"},
      {"root ::= []", "a class without characters"},
      {"root ::= [b-a]", "a range whose end is before its start"},
      {"root ::= (\"a\"", "line 1, column 10: a ( without its )"},
      {"root ::= \"a\")", "column 13: a ) that closes nothing"},
      {"root ::= \"\\q\"", "an escape that is not known"},
      {"root ::= \"\\x4\"", "expected 2 hexadecimal digits"},
      {"root ::= \"\\uD800\"", "surrogates come in pairs"},
      {"root ::= \"\\U00110000\"", "U+10FFFF is the last"},
      {"root ::= \"\xFF\"", "a byte that is not UTF-8"},
      {"root ::= \"a\"{3,2}", "expected {count}"},
      {"root ::= \"a\"{x}", "expected {count}"},
      {"root ::= \"a\"{99999999999}", "expected {count}"},
      {"root ::= <[x]>", "expected a token's id"},
      {"root ::= <[99999999999]>", "expected a token's id"},
      {"root ::= *", "expected a \"literal\""},
      {"root ::= \"a\" ::= \"b\"", "expected a \"literal\""},
      {std::string("root ::= \"a\" \0", 14), "expected a \"literal\""},
      {deep, "may be nested 128 deep"},
      {"root ::= \"a\"" + std::string(200, '*'), "may be nested 128 deep"},
      {"root ::= \"a\" root", "nothing at all matches root"},
      {"root ::= a\na ::= b \"x\"\nb ::= a", "nothing at all matches root"},
      {"root ::= [^\\x00-\\U0010FFFF]", "nothing at all matches root"}};
  for (const auto& [text, said] : cases) {
    CAPTURE(text);
    const auto compiled = CompiledGrammar::compile(text);
    REQUIRE_FALSE(compiled.ok());
    CHECK(compiled.error().code == ErrorCode::kInvalidArgument);
    CHECK_MESSAGE(compiled.error().message.find(said) != std::string::npos,
                  compiled.error().message);
  }
}

TEST_CASE("tokens by id, tokens without text and parts of characters") {
  // 256: a pair of bytes; 257: no text; 258: half a character; 259: across a rule's end.
  const auto trie = byte_vocabulary({"ab", "", "\xC3", "b\"c"});
  const TokenId size = trie->vocab_size();
  const auto first = [&](const std::string& grammar) {
    const auto compiled = CompiledGrammar::compile(grammar);
    REQUIRE(compiled.ok());
    GrammarMatcher matcher(*compiled, trie);
    return allowed_tokens(matcher, size);
  };
  CHECK(first("root ::= \"ab\"") == std::vector<TokenId>{'a', 256});
  CHECK(first("root ::= <[257]> \"a\"") == std::vector<TokenId>{257});
  CHECK(first("root ::= <[256]> | \"b\"") == std::vector<TokenId>{'b', 256});
  CHECK(first("root ::= <[99999]> | \"b\"") == std::vector<TokenId>{'b'});
  CHECK(first("root ::= \"\xC3\xA9\"") == std::vector<TokenId>{0xC3, 258});
  CHECK(first("root ::= s \"c\" | s \"d\" \ns ::= \"b\\\"\"") == std::vector<TokenId>{'b', 259});
  CHECK(first("root ::= s\ns ::= \"b\\\"\" | \"(\" s \")\"") == std::vector<TokenId>{'(', 'b'});

  const auto compiled = CompiledGrammar::compile("root ::= <[257]> \"a\" <[256]>?");
  GrammarMatcher matcher(*compiled, trie);
  CHECK_FALSE(matcher.accept('a'));
  CHECK(matcher.accept(257));
  CHECK_FALSE(matcher.accept(257));
  CHECK_FALSE(matcher.complete());
  CHECK(matcher.accept('a'));
  CHECK(matcher.complete());
  CHECK_FALSE(matcher.accept('a'));
  CHECK_FALSE(matcher.accept(-1));
  CHECK_FALSE(matcher.accept(size));
  CHECK(matcher.accept(256));
  CHECK(matcher.complete());
  CHECK(allowed_tokens(matcher, size).empty());
}

TEST_CASE("words behind the vocabulary are cleared") {
  const auto compiled = CompiledGrammar::compile("root ::= .*");
  const auto trie = byte_vocabulary();
  GrammarMatcher matcher(*compiled, trie);
  std::vector<std::uint32_t> bits(10, 0xFFFFFFFF);
  matcher.allowed(bits);
  CHECK((bits[2] & 2) != 0);  // 'A'
  CHECK(bits[8] == 0);
  CHECK(bits[9] == 0);
}

}  // namespace troupe
