#include "tools/troupe/chat/terminal_text.h"

#include <algorithm>

#include "model/tokenizer/utf8.h"

namespace troupe::chat {
namespace {

bool obeyed(char32_t c) {
  return (c < 0x20 && c != U'\n' && c != U'\t') || (c >= 0x7f && c < 0xa0) ||
         (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string TerminalText::feed(std::string_view bytes) {
  rest_ += bytes;
  std::string whole, out;
  rest_.erase(0, utf8::append_complete(whole, rest_));
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t begin = at;
    const char32_t c = utf8::decode(whole, at);
    if (c == U'\r') continue;
    if (obeyed(c))
      out += utf8::kReplacement;
    else
      out.append(whole, begin, at - begin);
  }
  return out;
}

std::string TerminalText::finish() {
  const bool cut = !rest_.empty();
  rest_.clear();
  return cut ? std::string(utf8::kReplacement) : std::string();
}

std::string terminal_line(std::string_view text, std::size_t bytes_max) {
  TerminalText filter;
  std::string line = filter.feed(text.substr(0, bytes_max));
  line += filter.finish();
  std::ranges::replace_if(line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

}  // namespace troupe::chat
