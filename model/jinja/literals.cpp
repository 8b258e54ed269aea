#include "model/jinja/literals.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "model/jinja/text.h"
#include "model/tokenizer/utf8.h"

namespace troupe::jinja {
namespace {

constexpr std::string_view kSimpleEscapes = "n\nt\tr\rb\bf\fv\va\a\\\\''\"\"";

int hex_digits_of(char c) { return c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0; }

/// Digits and single underscores between them.
std::size_t digits_length(std::string_view text, std::string_view digits) {
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t digit = text[i] == '_' && i > 0 ? i + 1 : i;
    if (digit >= text.size() || digits.find(text[digit]) == std::string_view::npos) break;
    i = digit + 1;
  }
  return i;
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '_') out += c;
  return out;
}

constexpr std::string_view kDecimal = "0123456789";

/// The bytes of ".5", "e3" or ".5e3" at the start of `text`.
std::size_t real_tail_length(std::string_view text) {
  std::size_t length = 0;
  if (text.starts_with('.')) {
    const std::size_t digits = digits_length(text.substr(1), kDecimal);
    if (digits == 0) return 0;
    length = 1 + digits;
  }
  std::string_view rest = text.substr(length);
  if (rest.starts_with('e') || rest.starts_with('E')) {
    const std::size_t sign = rest.size() > 1 && (rest[1] == '+' || rest[1] == '-') ? 1 : 0;
    const std::size_t digits = digits_length(rest.substr(1 + sign), kDecimal);
    if (digits > 0) length += 1 + sign + digits;
  }
  return length;
}

NumberLiteral integer(std::string_view text, std::size_t prefix, int base) {
  const std::string digits = without_underscores(text.substr(prefix));
  std::int64_t value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) return {};
  return {text.size(), Value(value)};
}

}  // namespace

std::optional<std::string> unescaped(std::string_view literal) {
  std::string out;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 >= literal.size()) {
      out += literal[i];
      continue;
    }
    const char c = literal[++i];
    if (c == '\n') continue;
    if (c >= '0' && c <= '7') {
      std::size_t end = i;
      char32_t code = 0;
      while (end < literal.size() && end < i + 3 && literal[end] >= '0' && literal[end] <= '7')
        code = code * 8 + static_cast<char32_t>(literal[end++] - '0');
      utf8::append(out, code);
      i = end - 1;
    } else if (const int digits = hex_digits_of(c); digits > 0) {
      std::uint32_t code = 0;
      const std::string_view hex = literal.substr(i + 1, static_cast<std::size_t>(digits));
      const auto end = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
      const bool character = code < 0xD800 || (code >= 0xE000 && code < 0x110000);
      if (end.ptr != hex.data() + digits || end.ec != std::errc() || !character)
        return std::nullopt;
      utf8::append(out, code);
      i += static_cast<std::size_t>(digits);
    } else {
      std::size_t simple = 0;
      while (simple < kSimpleEscapes.size() && kSimpleEscapes[simple] != c) simple += 2;
      if (simple < kSimpleEscapes.size())
        out += kSimpleEscapes[simple + 1];
      else
        out.append("\\").push_back(c);
    }
  }
  return out;
}

NumberLiteral read_number(std::string_view text, bool may_be_real) {
  if (text.size() > 2 && text[0] == '0') {
    const char kind = text[1];
    const int base = kind == 'x' || kind == 'X'   ? 16
                     : kind == 'b' || kind == 'B' ? 2
                     : kind == 'o' || kind == 'O' ? 8
                                                  : 0;
    const std::string_view digits = base == 16  ? "0123456789abcdefABCDEF"
                                    : base == 8 ? "01234567"
                                                : "01";
    const std::size_t length = base == 0 ? 0 : digits_length(text.substr(2), digits);
    if (length > 0) return integer(text.substr(0, 2 + length), 2, base);
  }
  const std::size_t whole = digits_length(text, kDecimal);
  const std::size_t tail = may_be_real ? real_tail_length(text.substr(whole)) : 0;
  if (tail == 0) return integer(text.substr(0, whole), 0, 10);
  const std::string digits = without_underscores(text.substr(0, whole + tail));
  double value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end.ec != std::errc()) return {};
  return {whole + tail, Value(value)};
}

std::size_t name_length(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    std::size_t next = i;
    const char32_t c = utf8::decode(text, next);
    if (c != '_' && !text::is_digit(c) && !text::is_letter(c)) break;
    i = next;
  }
  return i;
}

}  // namespace troupe::jinja
