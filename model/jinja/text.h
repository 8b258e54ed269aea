#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::jinja::text {

/// Python's view of a text: code points. Every text is valid UTF-8. Upper and lower case are known
/// for Latin, Greek and Cyrillic letters; templates use them for roles and types.

std::size_t length(std::string_view text);
/// Each code point's bytes.
std::vector<std::string_view> characters(std::string_view text);
/// Where the code point of this index begins; the size for those after the last.
std::size_t offset(std::string_view text, std::size_t index);

bool is_space(char32_t c);
bool is_digit(char32_t c);
bool is_letter(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);

/// Which ends strip() works on.
enum class Ends : unsigned char { kLeft, kRight, kBoth };
/// Without `chars`: white space.
std::string_view strip(std::string_view text, std::optional<std::string_view> chars, Ends ends);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
/// Python's str.title(): a letter after something that is none becomes upper case.
std::string titled(std::string_view text);

}  // namespace troupe::jinja::text
