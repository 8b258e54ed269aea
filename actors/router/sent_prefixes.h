#pragma once

#include <cstddef>
#include <cstdint>
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

/// How the sequences began that one replica was handed, the newest pieces of them: it has probably
/// kept their rows. A guess, which costs time at most when it is wrong.
class SentPrefixes {
 public:
  SentPrefixes() = default;
  SentPrefixes(SentPrefixes&&) = default;
  SentPrefixes& operator=(SentPrefixes&&) = default;

  void add(const PrefixChain& chain);
  /// Leading tokens that an earlier sequence had, too.
  std::uint64_t tokens_of(const PrefixChain& chain) const;
  std::size_t pieces() const { return pieces_.size(); }

 private:
  std::list<std::uint64_t> newest_first_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> pieces_;
};

}  // namespace troupe
