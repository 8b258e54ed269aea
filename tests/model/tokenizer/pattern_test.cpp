#include "model/tokenizer/pattern.h"

#include <doctest/doctest.h>

namespace troupe {
namespace {

std::string matches(std::string_view pattern, std::string_view text) {
  const auto compiled = Pattern::compile(pattern);
  if (!compiled) return "error: " + compiled.error().message;
  Matcher matcher;
  std::vector<TextRange> found;
  const Status status = matcher.find_all(*compiled, text, found);
  if (!status) return "error: " + status.error().message;
  std::string shown;
  for (const TextRange& range : found) {
    shown += "[" + std::string(text.substr(range.begin, range.end - range.begin)) + "]";
  }
  return shown;
}

}  // namespace

TEST_CASE("patterns mean what they mean to Oniguruma") {
  struct Case {
    std::string_view pattern;
    std::string_view text;
    std::string_view found;
  };
  constexpr Case kCases[] = {
      {R"(\s+)", "a\u0085\u00A0\v b\u180Ec\u200Bd", "[\u0085\u00A0\v ]"},
      {R"(\S)", "a \u180E", "[a][\u180E]"},
      {R"([\s\S])", "a ", "[a][ ]"},
      {R"([^\S\n]+)", "a \t\n b", "[ \t][ ]"},
      {R"([\P{L}x]+)", "ax1b", "[x1]"},
      {R"(\p{N}{1,3})", "12345²", "[123][45²]"},
      {R"(\p{L})", "\u1C89", "[\u1C89]"},         // of Unicode 16
      {R"(\p{Cn})", "\u1C89\u0378", "[\u0378]"},  // no longer unassigned
      {R"(\p{Mn})", "\U0001171E\u0300", "[\u0300]"},
      {R"(\w+)", "a_²é-", "[a_²é]"},
      {R"(\bx\b)", "x xx é x", "[x][x]"},
      {R"([一-龥]+)", "a一二b", "[一二]"},
      {R"([a\-\]z-]+)", "a-]zb", "[a-]z]"},
      {R"(\x41\u0042\x{43})", "ABC", "[ABC]"},
      {R"(a{,2})", "aaa", "[aa][a]"},
      {R"(a{x})", "a{x}", "[a{x}]"},
      {R"(^b$)", "a\nb\nc", "[b]"},
      {R"(.)", "a\nb", "[a][b]"},
      {R"((?i:'s|'LL))", "'S'll", "['S]['ll]"},
      {R"(x*)", "axb", "[][x][]"},
      {R"((a|b)+(?!c))", "abc", "[a]"},
      {R"(\v)", "\v\n", "[\v]"},
      {R"(\p{Han}+)", "一〇ア丽\U0002EBF0a", "[一〇][丽\U0002EBF0]"},
      {R"([a-d&&[^b]x]+)", "abcdx", "[a][cd]"},
      {R"([^\p{L}&&[^\s]]+)", "a1 b!", "[1 ][!]"},
      {R"(a{2,3}b|a)", "aaaabab", "[a][aaab][a]"},
      {R"([ab]+b|c?d)", "abbacd", "[abb][cd]"},
      {R"(\s+$)", "a \n b  ", "[ ][  ]"},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.pattern);
    CHECK(matches(c.pattern, c.text) == c.found);
  }
}

TEST_CASE("patterns without a counterpart are refused by name") {
  for (std::string_view pattern :
       {R"(\h)",       R"(\R)",     R"(\1)",      R"(\k<a>)",  R"(\pL)",   R"([[:alpha:]])",
        R"(\w[a&&b])", R"(a(?i)b)", R"((?<n>a))", R"((?m:a))", R"(a{2}+)", R"(a{2}?)",
        R"([)",        R"([])",     R"([b-a])",   R"([a-\d])", R"(\)",     R"(\xff)",
        R"(\x{d800})", R"(()",      R"(*a)",      R"((*UTF))", "\xff"}) {
    CAPTURE(pattern);
    CHECK(matches(pattern, "a").starts_with("error: "));
  }
}

TEST_CASE("a pattern that explodes is an error") {
  const std::string text(5000, 'a');
  CHECK(matches(R"((?:a+)+(?:a+)+b)", text + "cb").starts_with("error: "));
}

TEST_CASE("alternatives over a long run need no deep stack") {
  const std::string text(1'000'000, 'a');
  CHECK(matches(R"((?:a|[^\Sx\D])+)", text) == "[" + text + "]");
}

}  // namespace troupe
