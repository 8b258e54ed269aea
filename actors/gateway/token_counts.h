#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// How many tokens of each choice a client has: "3,5,0", in the order of choices.
using TokenCounts = std::vector<std::uint32_t>;

/// Of that many choices; a number alone counts for all. Also pairs, "0:3,1:5", in any order:
/// choices that are not named have 0. None for what is no such text.
std::optional<TokenCounts> parse_token_counts(std::string_view text, std::size_t choices);

/// The same, to be read by parse_token_counts().
std::string show_token_counts(const TokenCounts& counts);

}  // namespace troupe
