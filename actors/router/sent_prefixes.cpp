#include "actors/router/sent_prefixes.h"

#include <ranges>

#include "runtime/xxh3.h"

namespace troupe {

PrefixChain prefix_chain(std::span<const TokenId> prompt, std::span<const TokenId> output) {
  std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), output.begin(), output.end());
  PrefixChain chain;
  std::uint64_t before = 0;
  for (std::size_t end = kPrefixPieceTokens; end <= tokens.size(); end += kPrefixPieceTokens) {
    before =
        xxh3_64(&tokens[end - kPrefixPieceTokens], kPrefixPieceTokens * sizeof(TokenId), before);
    chain.push_back(before);
  }
  return chain;
}

/// The first piece counts as the newest: without it the others are not found.
void SentPrefixes::add(const PrefixChain& chain) {
  for (const std::uint64_t piece : chain | std::views::reverse) {
    const auto [found, added] = pieces_.try_emplace(piece);
    if (!added) newest_first_.erase(found->second);
    newest_first_.push_front(piece);
    found->second = newest_first_.begin();
  }
  for (; pieces_.size() > pieces_max_; newest_first_.pop_back())
    pieces_.erase(newest_first_.back());
}

void SentPrefixes::clear() {
  pieces_.clear();
  newest_first_.clear();
}

std::uint64_t SentPrefixes::tokens_of(const PrefixChain& chain) const {
  std::uint64_t tokens = 0;
  for (const std::uint64_t piece : chain) {
    if (!pieces_.contains(piece)) break;
    tokens += kPrefixPieceTokens;
  }
  return tokens;
}

}  // namespace troupe
