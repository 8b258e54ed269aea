#include "actors/gateway/token_counts.h"

#include <charconv>

namespace troupe {

std::optional<TokenCounts> parse_token_counts(std::string_view text, std::size_t choices) {
  TokenCounts counts;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::uint32_t count = 0;
    const auto [next, ec] = std::from_chars(at, end, count);
    if (ec != std::errc() || counts.size() == choices) return std::nullopt;
    counts.push_back(count);
    if (next == end) break;
    if (*next != ',') return std::nullopt;
    at = next + 1;
  }
  if (counts.size() == 1) counts.resize(choices, counts.front());
  if (counts.size() != choices) return std::nullopt;
  return counts;
}

std::string show_token_counts(const TokenCounts& counts) {
  std::string text;
  for (const std::uint32_t count : counts) {
    if (!text.empty()) text += ',';
    text += std::to_string(count);
  }
  return text;
}

}  // namespace troupe
