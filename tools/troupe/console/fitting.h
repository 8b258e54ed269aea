#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Text into so many columns. Nothing ends in the middle of a word while there is another way.
namespace troupe::console {

/// As many of the clauses as fit, the weightiest first; the others are left out whole. The first
/// stays whatever its width.
std::string fitting(const std::vector<std::string>& clauses, std::string_view separator, int width);

/// Broken between words into `rows_max` rows; what is left stands in the last.
std::vector<std::string> broken(std::string_view text, int width, std::size_t rows_max);

/// "a, b, +2": as many words as fit, all if they do; the first always.
std::string some_fitting(const std::vector<std::string>& words, int width);

}  // namespace troupe::console
