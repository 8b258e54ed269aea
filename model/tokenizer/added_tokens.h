#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/pattern.h"
#include "runtime/ids.h"
#include "runtime/result.h"

namespace troupe {

/// Looking for added tokens takes at most this many steps a byte of text.
inline constexpr std::size_t kAddedTokenBytesMax = 1024;

/// One entry of `added_tokens`.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< swallows white space before it
  bool rstrip = false;       ///< and after it
  bool normalized = false;   ///< looked for after the others
};

/// Finds added tokens in text: leftmost first, the longest of those that begin together. Mirrors
/// added_vocabulary.rs of Hugging Face's tokenizers.
class AddedTokenFinder {
 public:
  /// A piece of the text: an added token, or text between them (id < 0).
  struct Piece {
    TokenId id = -1;
    TextRange range;
  };

  AddedTokenFinder();

  /// Contents must be distinct and not empty.
  Status add(const AddedToken& token);

  /// So many bytes of text one of these tokens takes at most; none if one takes white space too.
  std::optional<std::size_t> longest() const;

  /// Appends the pieces of `text`; those without an id are not empty.
  Status split(std::string_view text, Matcher& matcher, std::vector<Piece>& pieces) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> children;  // sorted
    std::int32_t token = -1;                                        // index into tokens_
  };

  std::int32_t longest_at(std::string_view text, std::size_t position) const;
  Result<bool> touches_word(std::string_view text, TextRange range, Matcher& matcher) const;

  std::vector<Node> trie_;
  std::vector<std::int32_t> first_;  // by first byte: the node after it, or -1
  std::vector<AddedToken> tokens_;
  std::vector<Pattern> word_character_;  // One, if any token is single_word.
};

}  // namespace troupe
