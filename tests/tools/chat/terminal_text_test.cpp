#include "tools/troupe/chat/terminal_text.h"

#include <doctest/doctest.h>

namespace troupe::chat {
namespace {

std::string whole(std::string_view bytes) {
  TerminalText text;
  const std::string out = text.feed(bytes);
  return out + text.finish();
}

TEST_CASE("nothing that a terminal would obey passes") {
  const std::string r = "\xEF\xBF\xBD";
  for (const auto& [said, shown] : {
           std::pair<std::string, std::string>{"plain\ttext\n", "plain\ttext\n"},
           {"Zürich, 東京, 🙂", "Zürich, 東京, 🙂"},
           {"\x1b[2J\x1b]0;title\x07", r + "[2J" + r + "]0;title" + r},
           {"a\r\nb\rc", "a\nbc"},
           {"\x7f\b", r + r},
           {"\xC2\x9B"
            "31m",
            r + "31m"},  // CSI in C1
           {"\xE2\x80\xAE"
            "evil",
            r + "evil"},  // writes from right to left
           {"\xE2\x81\xA6"
            "x",
            r + "x"},
           {"\xff\xfe", r + r},
           {"half \xE2\x82", "half " + r},
           {std::string("nul\0", 4), "nul" + r},
       })
    CHECK(whole(said) == shown);
}

TEST_CASE("a character may come in two pieces, at every byte") {
  const std::string said = "a\xE2\x82\xAC\xF0\x9F\x99\x82\xC2\x9B!";
  for (std::size_t cut = 0; cut <= said.size(); ++cut) {
    TerminalText text;
    std::string out = text.feed(said.substr(0, cut));
    out += text.feed(said.substr(cut));
    CHECK(out + text.finish() == "a€🙂\xEF\xBF\xBD!");
  }
}

}  // namespace
}  // namespace troupe::chat
