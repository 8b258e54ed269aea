#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_matcher.h"
#include "model/grammar/token_trie.h"

namespace troupe {

/// The 256 bytes, then what the test adds.
inline std::shared_ptr<const TokenTrie> byte_vocabulary(const std::vector<std::string>& more = {}) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  tokens.insert(tokens.end(), more.begin(), more.end());
  return TokenTrie::make({tokens.begin(), tokens.end()}, static_cast<TokenId>(tokens.size()));
}

inline std::vector<TokenId> allowed_tokens(GrammarMatcher& matcher, TokenId vocab_size) {
  std::vector<std::uint32_t> bits((static_cast<std::size_t>(vocab_size) + 31) / 32);
  matcher.allowed(bits);
  std::vector<TokenId> tokens;
  for (TokenId id = 0; id < vocab_size; ++id) {
    if ((bits[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0) tokens.push_back(id);
  }
  return tokens;
}

/// Takes a text byte by byte; false where it may not go on.
inline bool takes(GrammarMatcher& matcher, std::string_view text) {
  for (const char c : text) {
    if (!matcher.accept(static_cast<std::uint8_t>(c))) return false;
  }
  return true;
}

}  // namespace troupe
