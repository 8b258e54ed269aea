#include "model/tokenizer/utf8.h"

#include <doctest/doctest.h>

namespace troupe {

TEST_CASE("invalid bytes become U+FFFD as in Python") {
  struct Case {
    std::string_view bytes;
    std::string_view text;  // '?' stands for U+FFFD
  };
  // bytes.decode("utf-8", "replace") of Python 3.
  constexpr Case kCases[] = {
      {"abc", "abc"},
      {"\x80", "?"},
      {"a\xffz", "a?z"},
      {"\xc0\xaf", "??"},
      {"\xc3", "?"},
      {"\xc3(", "?("},
      {"\xe2\x82", "?"},
      {"\xe2\x82(", "?("},
      {"\xe2(\x82", "?(?"},
      {"\xe0\x80\xaf", "???"},
      {"\xed\xa0\x80", "???"},
      {"\xf0\x9f\x98", "?"},
      {"\xf0\x9f\x98\xf0\x9f", "??"},
      {"\xf0\x80\x80\x80", "????"},
      {"\xf4\x90\x80\x80", "????"},
      {"\xf5\x80", "??"},
      {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
  };
  for (const Case& c : kCases) {
    std::string expected;
    for (const char byte : c.text) {
      if (byte == '?')
        expected += utf8::kReplacement;
      else
        expected += byte;
    }
    CHECK(utf8::repair(c.bytes) == expected);
    CHECK(utf8::valid(c.bytes) == (c.bytes == c.text));
  }
}

TEST_CASE("code points survive the way there and back") {
  for (char32_t c :
       {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    utf8::append(text, c);
    std::size_t position = 0;
    CHECK(utf8::decode(text, position) == c);
    CHECK(position == text.size());
    CHECK(utf8::valid(text));
  }
}

}  // namespace troupe
