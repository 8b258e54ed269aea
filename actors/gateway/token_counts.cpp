#include "actors/gateway/token_counts.h"

#include <charconv>

namespace troupe {

namespace {

std::optional<TokenCounts> parse_pairs(std::string_view text, std::size_t choices) {
  TokenCounts counts(choices, 0);
  std::vector<bool> named(choices, false);
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::uint32_t choice = 0, count = 0;
    const auto [colon, bad_choice] = std::from_chars(at, end, choice);
    if (bad_choice != std::errc() || colon == end || *colon != ':') return std::nullopt;
    const auto [next, bad_count] = std::from_chars(colon + 1, end, count);
    if (bad_count != std::errc() || choice >= choices || named[choice]) return std::nullopt;
    counts[choice] = count;
    named[choice] = true;
    if (next == end) return counts;
    if (*next != ',') return std::nullopt;
    at = next + 1;
  }
}

}  // namespace

std::optional<TokenCounts> parse_token_counts(std::string_view text, std::size_t choices) {
  if (text.find(':') != std::string_view::npos) return parse_pairs(text, choices);
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
