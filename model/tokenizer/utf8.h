#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// What the bytes at the start of a text are.
struct Step {
  enum class Kind : unsigned char {
    kCharacter,   ///< `length` bytes are one character
    kInvalid,     ///< `length` bytes become one U+FFFD
    kIncomplete,  ///< all bytes are the beginning of a character: more may complete it
  };
  Kind kind = Kind::kInvalid;
  std::size_t length = 0;
};

/// Reads one character of a text that is not empty. Invalid bytes are grouped as the Unicode
/// Standard recommends ("maximal subparts", chapter 3.9), which is what Python and Rust do.
Step next(std::string_view text);

/// Appends `bytes` to `out` with U+FFFD for what is not UTF-8. A character that is still incomplete
/// at the end is left out; the return value is how many bytes were used.
std::size_t append_complete(std::string& out, std::string_view bytes);

/// Whether all of it is UTF-8.
bool valid(std::string_view text);

/// The text with U+FFFD for what is not UTF-8, as Python's decode(errors="replace").
std::string repair(std::string_view bytes);

/// Appends one code point.
void append(std::string& out, char32_t code_point);

/// Reads one code point of valid UTF-8 at `position` and moves past it.
char32_t decode(std::string_view text, std::size_t& position);

}  // namespace troupe::utf8
