#include "runtime/token_rules.h"

namespace troupe {

std::size_t TokenRules::bytes() const {
  std::size_t bytes = grammar.size() + (end_tokens.size() + allowed.size()) * sizeof(TokenId) +
                      bias.size() * sizeof(TokenBias);
  for (const auto& word : banned) bytes += (word.size() + 2) * sizeof(TokenId);
  for (const std::string& text : grammar_after) bytes += text.size();
  return bytes;
}

}  // namespace troupe
