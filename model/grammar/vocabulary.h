#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/grammar/token_trie.h"
#include "runtime/ids.h"

namespace troupe {

/// What the tokens of a model say. Immutable.
struct Vocabulary {
  std::vector<std::string>
      texts;  ///< of each token, special ones written out; empty: no such token
  std::shared_ptr<const TokenTrie> trie;  ///< of those that a text is made of

  /// `special[i]`: token i is no text, and a grammar has it by its id only. `vocab_size` is the
  /// number of logits.
  static std::shared_ptr<const Vocabulary> make(std::vector<std::string> texts,
                                                const std::vector<bool>& special,
                                                TokenId vocab_size);
};

}  // namespace troupe
