#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "model/tokenizer/code_point_set.h"

namespace troupe {

/// One step of an alternative.
struct ScanItem {
  enum class Kind : unsigned char {
    kSet,       ///< `min` to `max` characters of `sets[set]`, as many as there are
    kNotAhead,  ///< the next character is none of `sets[set]`, or there is none
    kLineEnd,   ///< the end of the text or a line feed comes next
    kGroup,     ///< one of `branches`, the first that lets the rest match; nothing if `min` is 0
  };
  static constexpr std::uint32_t kNoMax = std::numeric_limits<std::uint32_t>::max();

  Kind kind = Kind::kSet;
  bool possessive = false;  ///< gives nothing back
  std::size_t set = 0;
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  std::vector<std::vector<std::size_t>> branches;  ///< a branch: sets of one character each
};

/// A pattern of the simple kind that pre-tokenizers use: alternatives, each a row of character
/// sets with bounds, with lookahead by one character and groups of literals.
struct ScanPattern {
  std::vector<CodePointSet> sets;
  std::vector<std::vector<ScanItem>> alternatives;
};

/// Reads a pattern of Oniguruma's syntax; nothing if it is not of that kind.
std::optional<ScanPattern> parse_scan_pattern(std::string_view pattern);

}  // namespace troupe
