#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_matcher.h"
#include "model/grammar/token_trie.h"

namespace {

using troupe::TokenId;

constexpr TokenId kTokens = 320;
constexpr std::size_t kAnswerTokensMax = 12;

/// Every byte, pieces of what the seeds write, and tokens without a text.
std::vector<std::string> make_vocabulary() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  for (const char* piece :
       {"ab", "aa",   "aba",      "\": \"",   "\",\"", "{\"", "\"}", "true",     "null", "10",
        "  ", "\n  ", "\xC3\xA9", "\xE6\x98", "]]",    "[[",  "}}",  "aaaaaaaa", "a\"",  "bb"})
    tokens.emplace_back(piece);
  tokens.resize(kTokens);
  return tokens;
}

using Bits = std::vector<std::uint32_t>;

bool is_set(const Bits& bits, TokenId id) { return (bits[id / 32] >> (id % 32) & 1) != 0; }

Bits allowed(troupe::GrammarMatcher& matcher) {
  Bits bits(kTokens / 32);
  matcher.allowed(bits);
  return bits;
}

/// The answer so far and one more token, with a vocabulary of only these: what else is there
/// changes nothing.
bool taken_alone(const std::shared_ptr<const troupe::CompiledGrammar>& grammar,
                 const std::vector<std::string>& tokens, const std::vector<TokenId>& answer,
                 TokenId next) {
  std::vector<std::string_view> texts(tokens.size());
  for (const TokenId id : answer) texts[id] = tokens[id];
  texts[next] = tokens[next];
  troupe::GrammarMatcher matcher(grammar, troupe::TokenTrie::make(texts, kTokens));
  for (const TokenId id : answer) {
    if (!matcher.accept(id)) std::abort();
  }
  return matcher.accept(next);
}

}  // namespace

/// A grammar's text, a zero byte, and bytes that choose tokens. Whatever it says, it compiles or
/// says why not; a mask has the tokens that are taken, and no others.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view text = input.substr(0, input.find('\0'));
  std::string_view choices = input.substr(std::min(input.size(), text.size() + 1));
  const auto grammar = troupe::CompiledGrammar::compile(text);
  if (!grammar.ok()) {
    if (grammar.error().message.empty()) std::abort();
    return 0;
  }
  static const std::vector<std::string> kVocabulary = make_vocabulary();
  static const auto kTrie =
      troupe::TokenTrie::make({kVocabulary.begin(), kVocabulary.end()}, kTokens);
  troupe::GrammarMatcher matcher(*grammar, kTrie);
  std::vector<TokenId> answer;
  for (std::size_t i = 0; i < kAnswerTokensMax; ++i) {
    const Bits bits = allowed(matcher);
    std::vector<TokenId> possible;
    for (TokenId id = 0; id < kTokens; ++id) {
      if (is_set(bits, id)) {
        possible.push_back(id);
      } else if (matcher.accept(id)) {
        std::abort();
      }
    }
    const std::size_t choice = i < choices.size() ? static_cast<std::uint8_t>(choices[i]) : i;
    const auto other = static_cast<TokenId>(choice * 37 % kTokens);
    if (taken_alone(*grammar, kVocabulary, answer, other) != is_set(bits, other)) std::abort();
    if (possible.empty()) break;
    answer.push_back(possible[choice % possible.size()]);
    if (!matcher.accept(answer.back())) std::abort();
  }
  return 0;
}
