#include "model/jinja/text.h"

#include <array>
#include <cstdio>

#include "model/jinja/python.h"
#include "model/tokenizer/utf8.h"

namespace troupe::jinja {
namespace {

/// A letter outside ASCII whose case is the other one this far away.
struct CaseRange {
  char32_t first, last;  // Of the lower case letters.
  int to_upper;
};
constexpr std::array kCaseRanges = {
    CaseRange{0x61, 0x7A, -32},   CaseRange{0xE0, 0xF6, -32},   CaseRange{0xF8, 0xFE, -32},
    CaseRange{0x3AC, 0x3AC, -38}, CaseRange{0x3AD, 0x3AF, -37}, CaseRange{0x3B1, 0x3C1, -32},
    CaseRange{0x3C3, 0x3CB, -32}, CaseRange{0x3CC, 0x3CC, -64}, CaseRange{0x430, 0x44F, -32},
    CaseRange{0x450, 0x45F, -80}, CaseRange{0xFF, 0xFF, 121}};

/// Latin Extended-A and Cyrillic's later letters alternate: upper, lower.
bool in_pairs(char32_t c, bool& upper_is_even) {
  upper_is_even = !((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E));
  const bool latin = (c >= 0x100 && c <= 0x12F) || (c >= 0x132 && c <= 0x137) ||
                     (c >= 0x139 && c <= 0x148) || (c >= 0x14A && c <= 0x177) ||
                     (c >= 0x179 && c <= 0x17E);
  return latin || (c >= 0x460 && c <= 0x481) || (c >= 0x48A && c <= 0x4BF);
}

char32_t upper_of(char32_t c) {
  for (const CaseRange& r : kCaseRanges)
    if (c >= r.first && c <= r.last) return static_cast<char32_t>(static_cast<int>(c) + r.to_upper);
  bool upper_is_even = false;
  if (in_pairs(c, upper_is_even) && (c % 2 == 0) != upper_is_even) return c - 1;
  return c;
}

char32_t lower_of(char32_t c) {
  for (const CaseRange& r : kCaseRanges) {
    const auto from = static_cast<char32_t>(static_cast<int>(c) - r.to_upper);
    if (from >= r.first && from <= r.last) return from;
  }
  bool upper_is_even = false;
  if (in_pairs(c, upper_is_even) && (c % 2 == 0) == upper_is_even) return c + 1;
  return c;
}

void append_upper(std::string& out, char32_t c) {
  if (c == 0xDF)
    out += "SS";
  else
    utf8::append(out, upper_of(c));
}

/// What repr() writes as it is.
bool printable(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) return false;
  if (c == 0x1680 || c == 0x180E || c == 0x3000 || c == 0xFEFF) return false;
  if ((c >= 0x2000 && c <= 0x200F) || (c >= 0x2028 && c <= 0x202F)) return false;
  if (c >= 0x205F && c <= 0x206F) return false;
  return !(c >= 0xE000 && c <= 0xF8FF) && !(c >= 0xFFF0 && c <= 0xFFFB) && (c & 0xFFFE) != 0xFFFE;
}

}  // namespace

std::string quoted_text(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = utf8::decode(text, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (printable(c)) {
      utf8::append(out, c);
    } else {
      std::array<char, 16> escape{};
      const char* form = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(escape.data(), escape.size(), form, static_cast<unsigned>(c));
      out += escape.data();
    }
  }
  return out + quote;
}

namespace text {

std::size_t length(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t first = i;
    utf8::decode(text, i);
    all.push_back(text.substr(first, i - first));
  }
  return all;
}

std::size_t offset(std::string_view text, std::size_t index) {
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;
    if (index-- == 0) break;
  }
  return i;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_upper(char32_t c) { return lower_of(c) != c; }
bool is_lower(char32_t c) { return upper_of(c) != c || c == 0xDF; }
bool is_letter(char32_t c) {
  if (is_upper(c) || is_lower(c)) return true;
  return c >= 0x180 && !is_space(c) && !(c >= 0x2000 && c <= 0x2BFF) &&
         !(c >= 0x3000 && c <= 0x3030) && !(c >= 0xE000 && c <= 0xF8FF) &&
         !(c >= 0xFE00 && c <= 0xFF20) && c < 0x1F000;
}

std::string_view strip(std::string_view text, std::optional<std::string_view> chars, Ends ends) {
  const auto goes = [&](std::string_view character) {
    if (chars) return chars->find(character) != std::string_view::npos;
    std::size_t at = 0;
    return is_space(utf8::decode(character, at));
  };
  if (ends != Ends::kRight) {
    while (!text.empty()) {
      std::size_t next = 0;
      utf8::decode(text, next);
      if (!goes(text.substr(0, next))) break;
      text.remove_prefix(next);
    }
  }
  if (ends != Ends::kLeft) {
    while (!text.empty()) {
      std::size_t last = text.size() - 1;
      while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      if (!goes(text.substr(last))) break;
      text.remove_suffix(text.size() - last);
    }
  }
  return text;
}

std::string upper(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) append_upper(out, utf8::decode(text, i));
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) utf8::append(out, lower_of(utf8::decode(text, i)));
  return out;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t rest = offset(text, 1);
  return upper(text.substr(0, rest)) + lower(text.substr(rest));
}

std::string titled(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = utf8::decode(text, i);
    if (in_word)
      utf8::append(out, lower_of(c));
    else
      append_upper(out, c);
    in_word = is_upper(c) || is_lower(c);
  }
  return out;
}

}  // namespace text
}  // namespace troupe::jinja
