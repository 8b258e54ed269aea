#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/grammar/token_trie.h"

namespace troupe::grammar {

/// Kinds of what follows in a text, one bit each: a state that stays itself over some of them stays
/// itself over a subtree of tokens that has no others.
inline constexpr int kAsciiKinds = 17;
inline constexpr std::uint32_t kWellFormed = 1u << 17;  ///< UTF-8 of characters above ASCII
inline constexpr std::uint32_t kIllFormed = 1u << 18;   ///< bytes that are no UTF-8
inline constexpr int kKinds = 19;
/// The kind of each ASCII byte.
std::array<std::uint8_t, 128> ascii_kinds();

/// A text that tokens begin with.
struct TokenTreeNode {
  std::uint32_t end = 0;     ///< the first node behind the subtree
  std::uint32_t first = 0;   ///< where in `order` its own tokens begin; they end at the next node's
  std::uint32_t kinds = 0;   ///< of all that follows in the subtree, read from here on
  std::uint16_t depth = 0;   ///< the length of the text
  std::uint16_t height = 0;  ///< how many bytes longer the longest below it is
  std::uint8_t byte = 0;     ///< the last of the text
};

/// The vocabulary's texts as a tree over their bytes, in preorder, so that the nodes of a subtree
/// and its tokens lie side by side.
struct TokenTree {
  std::vector<TokenTreeNode> nodes;  ///< the first is the empty text; one more behind the last
  std::vector<TokenId> order;        ///< tokens with a text, sorted by it
};

}  // namespace troupe::grammar

namespace troupe {

struct TokenTrie::Impl {
  std::string text;                     // of all tokens, one after another
  std::vector<std::size_t> ends = {0};  // [tokens + 1]
  TokenId vocab_size = 0;
  grammar::TokenTree tree;
};

}  // namespace troupe
