// How long it takes to compile grammars and to find masks, cold: every document has a grammar of
// its own, so that each state is visited for the first time.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_matcher.h"
#include "model/grammar/token_trie.h"

namespace {

using troupe::TokenId;
using Random = std::mt19937_64;

/// Of this thread's processor: what else the machine does meanwhile does not count.
double seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string from_base64(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return out;
}

/// A file of tiktoken's: a token in base64 and its rank a line.
std::vector<std::string> read_tiktoken(const char* path) {
  std::ifstream in(path);
  std::vector<std::string> tokens;
  for (std::string line; std::getline(in, line);) tokens.push_back(from_base64(line));
  return tokens;
}

/// As a tokenizer cuts a text, about: the longest token that fits, each time.
class LongestMatch {
 public:
  explicit LongestMatch(const std::vector<std::string>& tokens) {
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (tokens[id].empty()) continue;
      ids_.emplace(tokens[id], static_cast<TokenId>(id));
      longest_ = std::max(longest_, tokens[id].size());
    }
  }
  std::vector<TokenId> encode(std::string_view text) const {
    std::vector<TokenId> ids;
    while (!text.empty()) {
      std::size_t length = std::min(longest_, text.size());
      while (length > 0 && ids_.find(std::string(text.substr(0, length))) == ids_.end()) --length;
      if (length == 0) return {};
      ids.push_back(ids_.at(std::string(text.substr(0, length))));
      text.remove_prefix(length);
    }
    return ids;
  }

 private:
  std::unordered_map<std::string, TokenId> ids_;
  std::size_t longest_ = 0;
};

std::size_t below(Random& random, std::size_t n) { return random() % n; }

std::string words(Random& random, std::size_t count) {
  static const std::array<const char*, 16> kWords = {"the",
                                                     "river",
                                                     "Berlin",
                                                     "caf\xC3\xA9",
                                                     "42",
                                                     "it's",
                                                     "a",
                                                     "model's",
                                                     "\\\"quoted\\\"",
                                                     "\xE6\x98\xAF",
                                                     "and",
                                                     "under",
                                                     "https://x.org/a?b=1",
                                                     "C++",
                                                     "end.",
                                                     "\\u00e9"};
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += (i == 0 ? "" : " ") + std::string(kWords[below(random, 16)]);
  return text;
}

std::string quoted(Random& random) { return "\"" + words(random, 1 + below(random, 12)) + "\""; }

std::string any_value(Random& random, int depth) {
  const std::size_t kind = below(random, depth > 0 ? 7 : 5);
  if (kind == 0) return std::to_string(static_cast<std::int64_t>(random() % 100000) - 500);
  if (kind == 1) return below(random, 2) == 0 ? "true" : "null";
  if (kind == 2)
    return std::to_string(below(random, 100)) + "." + std::to_string(below(random, 100));
  if (kind <= 4) return quoted(random);
  std::string text = kind == 5 ? "[" : "{";
  for (std::size_t i = below(random, 5); i > 0; --i) {
    if (kind == 6) text += "\"" + words(random, 1) + "\": ";
    text += any_value(random, depth - 1) + (i > 1 ? ", " : "");
  }
  return text + (kind == 5 ? "]" : "}");
}

constexpr const char* kJson = R"(
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (string ws ":" ws value ws ("," ws string ws ":" ws value ws)*)? "}"
array ::= "[" ws (value ws ("," ws value ws)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
ws ::= [ \n\t]{0,8}
)";

constexpr const char* kSchema = R"(
root ::= "{" ws "\"id\"" ws ":" ws integer "," ws "\"name\"" ws ":" ws string "," ws
  "\"kind\"" ws ":" ws
  ("\"person\"" | "\"company\"" | "\"place\"") "," ws "\"address\"" ws ":" ws address "," ws
  "\"tags\"" ws ":" ws "[" ws (string ws ("," ws string ws)*)? "]"
  ("," ws "\"score\"" ws ":" ws number)?
  ("," ws "\"born\"" ws ":" ws date)? "," ws
  "\"items\"" ws ":" ws "[" ws (item ws ("," ws item ws)*)? "]" ws "}"
address ::= "{" ws "\"street\"" ws ":" ws string "," ws "\"city\"" ws ":" ws
  short "," ws "\"zip\"" ws ":" ws
  "\"" [0-9]{5} "\"" ws "}"
item ::= "{" ws "\"sku\"" ws ":" ws "\"" [A-Z]{3} "-" [0-9]{4} "\"" ","
  ws "\"count\"" ws ":" ws integer ","
  ws "\"note\"" ws ":" ws (string | "null") ws "}"
date ::= "\"" [0-9]{4} "-" [0-9]{2} "-" [0-9]{2} "\""
short ::= "\"" char{1,80} "\""
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
integer ::= "-"? ("0" | [1-9] [0-9]{0,15})
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,3})?
ws ::= [ \n\t]{0,8}
)";

std::string schema_document(Random& random) {
  const auto number = [&](std::size_t n) { return std::to_string(below(random, n)); };
  const auto digits = [&](int n) {
    std::string text;
    while (n-- > 0) text += static_cast<char>('0' + below(random, 10));
    return text;
  };
  std::string text = "{\"id\": " + number(100000) + ", \"name\": " + quoted(random) +
                     ", \"kind\": \"person\", \"address\": {\"street\": " + quoted(random) +
                     ", \"city\": \"" + words(random, 2) + "\", \"zip\": \"" + digits(5) +
                     "\"}, \"tags\": [";
  for (std::size_t i = below(random, 4); i > 0; --i) text += quoted(random) + (i > 1 ? ", " : "");
  text += "]";
  if (below(random, 2) == 0) text += ", \"score\": " + number(100) + "." + number(1000);
  if (below(random, 2) == 0)
    text += ",\n  \"born\": \"" + digits(4) + "-" + digits(2) + "-" + digits(2) + "\"";
  text += ", \"items\": [";
  for (std::size_t i = 1 + below(random, 5); i > 0; --i) {
    text += "{\"sku\": \"ABC-" + digits(4) + "\", \"count\": " + number(50) +
            ", \"note\": " + (below(random, 2) == 0 ? "null" : quoted(random)) + "}" +
            (i > 1 ? ", " : "");
  }
  return text + "]}";
}

std::string enum_value(std::size_t i) {
  return "product-" + std::to_string(i * 7919 % 100003) + (i % 3 == 0 ? "-blue" : "-red");
}

struct Case {
  const char* name;
  std::string grammar;
  std::function<std::string(Random&)> document;
};

std::vector<Case> cases() {
  std::string choices = "root ::= \"\\\"\" (";
  for (std::size_t i = 0; i < 10000; ++i)
    choices += (i == 0 ? "\"" : " | \"") + enum_value(i) + "\"";
  choices += ") \"\\\"\"\n";
  const std::string bounded =
      "root ::= \"\\\"\" char{0,10000} \"\\\"\"\nchar ::= [^\"\\\\\\x00-\\x1f] | \"\\\\\" "
      "[\"\\\\/bfnrt]"
      " | \"\\\\u\" [0-9a-f]{4}\n";
  return {{"schema", kSchema, schema_document},
          {"any JSON", "root ::= value" + std::string(kJson),
           [](Random& random) {
             return "[" + any_value(random, 4) + "," + any_value(random, 4) + "]";
           }},
          {"10,000 values", choices,
           [](Random& random) { return "\"" + enum_value(below(random, 10000)) + "\""; }},
          {"string of 10,000", bounded, [](Random& random) {
             std::string text = words(random, 3000).substr(0, 9000);
             text = "\"" + text.substr(0, text.rfind(' ')) + " ";
             return text + std::string(9990 - std::min<std::size_t>(9990, text.size()), 'x') + "\"";
           }}};
}

double percentile(std::vector<double>& times, double part) {
  if (times.empty()) return 0;
  const auto rank = static_cast<std::size_t>(part * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(rank), times.end());
  return times[rank];
}

struct Times {
  std::vector<double> compile, mask, accept;
};

bool run_document(const Case& c, const std::string& text, const LongestMatch& encoder,
                  const std::shared_ptr<const troupe::TokenTrie>& trie, Times& times) {
  double start = seconds();
  const auto grammar = troupe::CompiledGrammar::compile(c.grammar);
  times.compile.push_back(seconds() - start);
  if (!grammar.ok()) {
    std::fprintf(stderr, "%s\n", grammar.error().message.c_str());
    return false;
  }
  troupe::GrammarMatcher matcher(*grammar, trie);
  std::vector<std::uint32_t> bits((static_cast<std::size_t>(trie->vocab_size()) + 31) / 32);
  for (const TokenId id : encoder.encode(text)) {
    start = seconds();
    matcher.allowed(bits);
    times.mask.push_back(seconds() - start);
    const bool allowed = (bits[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0;
    start = seconds();
    const bool accepted = matcher.accept(id);
    times.accept.push_back(seconds() - start);
    if (!allowed || !accepted) {
      std::fprintf(stderr, "%s: refuses %s\n", c.name, std::string(trie->token(id)).c_str());
      return false;
    }
  }
  return matcher.complete();
}

}  // namespace

/// grammar_bench VOCABULARY [DOCUMENTS]: a file of tiktoken's, such as Llama 3's tokenizer.model.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: grammar_bench TIKTOKEN_FILE [DOCUMENTS]\n");
    return 2;
  }
  const std::vector<std::string> tokens = read_tiktoken(argv[1]);
  const std::size_t documents = argc > 2 ? std::stoul(argv[2]) : 30;
  const LongestMatch encoder(tokens);
  double start = seconds();
  const auto trie = troupe::TokenTrie::make({tokens.begin(), tokens.end()},
                                            static_cast<TokenId>(tokens.size() + 256));
  std::printf("%zu tokens, trie in %.0f ms\n", tokens.size(), (seconds() - start) * 1e3);
  std::printf("%-18s %7s %21s %35s %12s\n", "", "tokens", "compile ms p50 p99",
              "mask us p50 p99 max mean", "accept p50");
  for (const Case& c : cases()) {
    Times times;
    Random random(1);
    for (std::size_t i = 0; i < documents; ++i) {
      if (!run_document(c, c.document(random), encoder, trie, times)) return 1;
    }
    double sum = 0;
    for (const double t : times.mask) sum += t;
    std::printf("%-18s %7zu %10.2f %10.2f %8.1f %8.1f %8.1f %8.1f %12.1f\n", c.name,
                times.mask.size(), percentile(times.compile, .5) * 1e3,
                percentile(times.compile, .99) * 1e3, percentile(times.mask, .5) * 1e6,
                percentile(times.mask, .99) * 1e6, percentile(times.mask, 1) * 1e6,
                sum / static_cast<double>(times.mask.size()) * 1e6,
                percentile(times.accept, .5) * 1e6);
  }
  return 0;
}
