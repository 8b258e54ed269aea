#include "model/grammar/grammar_scanner.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace troupe::grammar {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

bool is_surrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// How a character of several bytes begins: its first byte's mark, and the smallest code point.
struct LeadByte {
  std::uint8_t mask, mark;
  int more;
  char32_t least;
};
constexpr std::array<LeadByte, 3> kLeads = {
    {{0xE0, 0xC0, 1, 0x80}, {0xF0, 0xE0, 2, 0x800}, {0xF8, 0xF0, 3, 0x10000}}};

}  // namespace

void GrammarScanner::fail(std::size_t position, const std::string& what) {
  if (failed()) return;
  const std::string_view before = text_.substr(0, position);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
  error_ = invalid_argument("line " + std::to_string(line) + ", column " +
                            std::to_string(position - begin + 1) + ": " + what);
}

bool GrammarScanner::take(std::string_view word) {
  if (!starts_with(word)) return false;
  position_ += word.size();
  return true;
}

void GrammarScanner::skip_space() {
  while (!at_end()) {
    if (text_[position_] == '#') {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (is_space(text_[position_])) {
      ++position_;
    } else {
      return;
    }
  }
}

std::string_view GrammarScanner::name() {
  const std::size_t begin = position_;
  if (failed()) return {};
  while (!at_end() && is_name(text_[position_])) ++position_;
  return text_.substr(begin, position_ - begin);
}

bool GrammarScanner::definition_ahead() const {
  std::size_t at = position_;
  while (at < text_.size() && is_name(text_[at])) ++at;
  if (at == position_) return false;
  while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
  return text_.substr(at).starts_with("::=");
}

std::optional<unsigned> GrammarScanner::number(unsigned max) {
  std::uint64_t value = 0;
  bool any = false;
  while (peek() >= '0' && peek() <= '9') {
    value = std::min<std::uint64_t>(value * 10 + static_cast<unsigned>(peek() - '0'), 1ull << 40);
    any = true;
    ++position_;
  }
  if (!any || value > max) return std::nullopt;
  return static_cast<unsigned>(value);
}

char32_t GrammarScanner::character() {
  if (failed()) return 0;
  return peek() == '\\' ? escape() : plain();
}

char32_t GrammarScanner::escape() {
  const std::size_t begin = position_++;
  const char c = peek();
  ++position_;
  if (c == 'n') return '\n';
  if (c == 't') return '\t';
  if (c == 'r') return '\r';
  char32_t code_point = 0;
  if (c == 'x') {
    code_point = hex(2);
  } else if (c == 'u') {
    code_point = hex(4);
    // A pair of surrogates is one character, as in JSON.
    if (code_point >= 0xD800 && code_point < 0xDC00 && take("\\u")) {
      const char32_t low = hex(4);
      const bool pair = low >= 0xDC00 && low <= 0xDFFF;
      if (pair) code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
    }
  } else if (c == 'U') {
    code_point = hex(8);
  } else if (c > ' ' && c < 0x7f && (c == '-' || c == '_' || !is_name(c))) {
    return static_cast<char32_t>(c);  // punctuation stands for itself
  } else {
    fail(begin,
         "an escape that is not known; there are \\n \\t \\r \\\\ \\\" \\xHH \\uHHHH "
         "\\UHHHHHHHH and a \\ before punctuation");
  }
  if (!failed() && (is_surrogate(code_point) || code_point > 0x10FFFF))
    fail(begin, "an escape that is no character: surrogates come in pairs, U+10FFFF is the last");
  return code_point;
}

char32_t GrammarScanner::hex(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const int digit = hex_digit(peek());
    if (digit < 0) {
      fail(position_, "expected " + std::to_string(digits) + " hexadecimal digits");
      return 0;
    }
    value = value << 4 | static_cast<char32_t>(digit);
    ++position_;
  }
  return value;
}

char32_t GrammarScanner::plain() {
  const std::size_t begin = position_++;
  const auto first = static_cast<std::uint8_t>(text_[begin]);
  if (first < 0x80) return first;
  for (const LeadByte& lead : kLeads) {
    if ((first & lead.mask) != lead.mark) continue;
    char32_t value = first & static_cast<std::uint8_t>(~lead.mask);
    int left = lead.more;
    for (; left > 0 && !at_end(); --left, ++position_) {
      const auto next = static_cast<std::uint8_t>(text_[position_]);
      if ((next & 0xC0) != 0x80) break;
      value = value << 6 | (next & 0x3F);
    }
    if (left == 0 && value >= lead.least && value <= 0x10FFFF && !is_surrogate(value)) return value;
  }
  fail(begin, "a byte that is not UTF-8; write the grammar as UTF-8");
  return 0;
}

}  // namespace troupe::grammar
