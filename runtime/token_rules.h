#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ids.h"

namespace troupe {

/// Added to a token's logit, as OpenAI's `logit_bias` has it.
struct TokenBias {
  TokenId token = 0;
  float bias = 0;
  bool operator==(const TokenBias&) const = default;
};

/// Which tokens an answer may be made of, whatever their probabilities say. The rules hold for the
/// answer's tokens alone, and what they say of the next one is a function of those before it.
struct TokenRules {
  std::string grammar;  ///< what the answer must look like: model/grammar/README.md; or empty
  /// The grammar begins after these texts, one after the other, special tokens written out.
  std::vector<std::string> grammar_after;
  /// Not negative: `grammar_after` counts only if the answer begins with this token, which may come
  /// first; else the grammar begins at once.
  TokenId thought_token = -1;
  /// Not negative: if the grammar may begin with this token, it does so where the token comes, too,
  /// before `grammar_after`.
  TokenId grammar_token = -1;
  /// Tokens that end an answer: not before the grammar is complete and `min_tokens` are there.
  std::vector<TokenId> end_tokens;
  std::uint32_t min_tokens = 0;
  std::vector<TokenId> allowed;              ///< `allowed_token_ids`, rising; empty: all
  std::vector<std::vector<TokenId>> banned;  ///< `bad_words`: none of these may be completed
  std::vector<TokenBias> bias;               ///< `logit_bias`, by rising token
  bool operator==(const TokenRules&) const = default;

  /// About what they take on their way.
  std::size_t bytes() const;
};

}  // namespace troupe
