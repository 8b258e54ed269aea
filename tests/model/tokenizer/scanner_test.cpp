#include "model/tokenizer/scanner.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "model/tokenizer/pattern.h"
#include "model/tokenizer/pattern_syntax.h"
#include "model/tokenizer/published_patterns.h"
#include "model/tokenizer/unicode_properties.h"
#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

constexpr const char* kFamilies[] = {
    "gpt-2",   "smollm", "llama-bpe", "qwen2",        "qwen35",         "gpt-4o",     "tekken",
    "kimi-k2", "glm4",   "llama4",    "deepseek-llm", "deepseek-coder", "deepseek-v3"};
constexpr const char* kAtoms[] = {"'",
                                  "s",
                                  "S",
                                  "'ll",
                                  "'LL",
                                  "\u017f",
                                  "'\u212a",
                                  "re",
                                  "a",
                                  "B",
                                  "ab",
                                  "AB",
                                  "Ab",
                                  "é",
                                  "É",
                                  "e\u0301",
                                  "\u01c5",
                                  "\u02b0",
                                  "ß",
                                  "1",
                                  "12",
                                  "²",
                                  "\u0663",
                                  "一",
                                  "二",
                                  "〇",
                                  "\u3005",
                                  "ア",
                                  "가",
                                  " ",
                                  "  ",
                                  "\t",
                                  "\n",
                                  "\r",
                                  "\r\n",
                                  "\u00a0",
                                  "\u3000",
                                  "\u2028",
                                  "\u0085",
                                  "\u200b",
                                  "!",
                                  "?!",
                                  "/",
                                  "-",
                                  "_",
                                  "(",
                                  "€",
                                  "，",
                                  "👍",
                                  "\u0915\u093f",
                                  "\u0e01\u0e34",
                                  "\U00013460",
                                  "\u1c89",
                                  "<",
                                  "$"};

std::string random_text(std::mt19937& random) {
  std::string text;
  for (std::size_t count = 1 + random() % 12; count > 0; --count) {
    const std::string atom = kAtoms[random() % std::size(kAtoms)];
    for (std::size_t times = random() % 8 == 0 ? 1 + random() % 40 : 1; times > 0; --times) {
      text += atom;
    }
    if (random() % 16 == 0) {
      char32_t c = random() % 0x110000;
      if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
      utf8::append(text, c);
    }
  }
  return text;
}

std::vector<std::pair<std::size_t, std::size_t>> ranges(const Pattern& pattern,
                                                        std::string_view text) {
  Matcher matcher;
  std::vector<TextRange> found;
  REQUIRE(matcher.find_all(pattern, text, found).ok());
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (const TextRange& range : found) pairs.emplace_back(range.begin, range.end);
  return pairs;
}

}  // namespace

TEST_CASE("every published pattern is scanned, and as PCRE2 would match it") {
  std::mt19937 random(7);
  for (const char* family : kFamilies) {
    const std::optional<PublishedPreTokenizer> published = published_pre_tokenizer(family);
    REQUIRE(published.has_value());
    for (const std::string_view expression : published->patterns) {
      CAPTURE(expression);
      const std::optional<ScanPattern> simple = parse_scan_pattern(expression);
      REQUIRE(simple.has_value());
      REQUIRE(Scanner::compile(*simple).has_value());
      const Result<std::string> syntax = to_pcre2_syntax(expression);
      if (!syntax) {
        CHECK(std::string_view(family) == "kimi-k2");  // PCRE2 has no intersections.
        continue;
      }
      const Result<Pattern> scanned = Pattern::compile(expression);
      const Result<Pattern> general = Pattern::compile_pcre2(*syntax);
      REQUIRE(scanned.ok());
      REQUIRE(general.ok());
      for (int i = 0; i < 1500; ++i) {
        const std::string text = random_text(random);
        CAPTURE(text);
        REQUIRE(ranges(*scanned, text) == ranges(*general, text));
      }
    }
  }
}

TEST_CASE("every character is in the classes that PCRE2 has it in") {
  std::string all;
  for (char32_t c = 0; c <= CodePointSet::kLast; ++c) {
    if (c < 0xD800 || c >= 0xE000) utf8::append(all, c);
  }
  for (const char* name : {"L", "M", "N", "P", "S", "Z", "C", "Lu", "Ll", "Lt", "Lm", "Lo", "Nd"}) {
    CAPTURE(name);
    const std::string expression = std::string("\\p{") + name + "}";
    const Result<std::string> syntax = to_pcre2_syntax(expression);
    REQUIRE(syntax.ok());
    const Result<Pattern> general = Pattern::compile_pcre2("(?:" + *syntax + ")+");
    const Result<Pattern> scanned = Pattern::compile(expression + "+");
    REQUIRE(general.ok());
    CHECK(ranges(*scanned, all) == ranges(*general, all));
  }
  const UnicodeProperties& unicode = UnicodeProperties::all();
  CHECK(unicode.property("Ll")->contains(U'a'));
  CHECK(!unicode.property("Lu")->contains(U'a'));
  CHECK(!unicode.property("Xx"));
}

TEST_CASE("what a scanner cannot do is left to PCRE2") {
  for (const char* expression :
       {R"(a*?b)", R"((?:a+)+b)", R"((?=a)b)", R"((?<!a)b)", R"(a*)", R"(\ba)", R"(\w+)", R"(^a)",
        R"((?i:ss))", R"((?i:é))", R"(a|)", R"((?i)a)", R"(.)", R"([[:alpha:]])", R"(a{2}+)"}) {
    CAPTURE(expression);
    const std::optional<ScanPattern> simple = parse_scan_pattern(expression);
    CHECK(!(simple && Scanner::compile(*simple)));
  }
}

TEST_CASE("a scan of too many steps is an error") {
  const Result<Pattern> pattern = Pattern::compile("[ab]*[ac]*[ad]*[ae]*[af]*[ag]*z");
  REQUIRE(pattern.ok());
  Matcher matcher;
  std::vector<TextRange> found;
  const Status status = matcher.find_all(*pattern, std::string(3000, 'a'), found);
  REQUIRE(!status.ok());
  CHECK(status.error().message.find("gave up") != std::string::npos);
}

TEST_CASE("a long run that leads to nothing is tried once, not from each of its places") {
  struct Case {
    const char* expression;
    std::string text;
    std::size_t matches;
  };
  const Case cases[] = {{R"(\s+$)", std::string(200'000, ' ') + "5", 0},
                        {R"(\s+$)", std::string(200'000, ' ') + "5 ", 1},
                        {R"(a+b)", std::string(200'000, 'a') + "cab", 1},
                        {R"(a+b|ac)", std::string(200'000, 'a') + "cab", 2},
                        {R"(a{2,3}b)", "aaaaab", 1}};
  for (const Case& c : cases) {
    CAPTURE(c.expression);
    const Result<Pattern> pattern = Pattern::compile(c.expression);
    REQUIRE(pattern.ok());
    Matcher matcher;
    std::vector<TextRange> found;
    CHECK(matcher.find_all(*pattern, c.text, found).ok());
    CHECK(found.size() == c.matches);
  }
}

}  // namespace troupe
