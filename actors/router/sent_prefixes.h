#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/ids.h"

namespace troupe {

/// Tokens in a piece of a sequence; what is shorter is not worth a choice of replica.
inline constexpr std::size_t kPrefixPieceTokens = 32;
/// Pieces that are remembered of one replica: 2 million tokens, some 6 MB.
inline constexpr std::size_t kPrefixPiecesMax = 1u << 16;

/// Of the whole pieces of a sequence, in order: each one's hash covers those before it.
using PrefixChain = std::vector<std::uint64_t>;
PrefixChain prefix_chain(std::span<const TokenId> prompt, std::span<const TokenId> output);

/// What one replica has of sequences, as they were handed to it and as they ended there: the newest
/// pieces of them, no more than its cache holds, which forgets the longest idle first, too. A
/// guess, which costs time at most when it is wrong.
class SentPrefixes {
 public:
  explicit SentPrefixes(std::uint64_t cache_tokens = std::numeric_limits<std::uint64_t>::max())
      : pieces_max_(std::min<std::uint64_t>(cache_tokens / kPrefixPieceTokens, kPrefixPiecesMax)) {}
  SentPrefixes(SentPrefixes&&) = default;
  SentPrefixes& operator=(SentPrefixes&&) = default;

  void add(const PrefixChain& chain);
  void clear();
  /// Leading tokens that an earlier sequence had, too.
  std::uint64_t tokens_of(const PrefixChain& chain) const;
  std::size_t pieces() const { return pieces_.size(); }

 private:
  std::size_t pieces_max_;
  std::list<std::uint64_t> newest_first_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> pieces_;
};

}  // namespace troupe
