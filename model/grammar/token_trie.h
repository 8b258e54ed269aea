#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/ids.h"

namespace troupe {

/// A model's vocabulary as a trie of bytes, so that a grammar looks at what tokens have in common
/// once. Immutable.
class TokenTrie {
 public:
  /// `tokens[i]` is what token i contributes to a text, possibly a part of a character; empty: no
  /// text can ask for it (no such token, or a special one). `vocab_size` is the number of logits,
  /// at least as many.
  static std::shared_ptr<const TokenTrie> make(const std::vector<std::string_view>& tokens,
                                               TokenId vocab_size);
  ~TokenTrie();
  TokenTrie(const TokenTrie&) = delete;
  TokenTrie& operator=(const TokenTrie&) = delete;

  TokenId vocab_size() const;
  std::string_view token(TokenId id) const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit TokenTrie(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace troupe
