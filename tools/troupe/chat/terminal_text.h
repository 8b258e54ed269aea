#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::chat {

/// What a model says, fit for a terminal: UTF-8 without anything that a terminal would obey.
///
/// It comes in pieces, which may end within a character. Control characters but line feed and tab,
/// C1's too, marks that turn the direction of writing around, and what is no UTF-8 become U+FFFD;
/// carriage returns are left out.
class TerminalText {
 public:
  std::string feed(std::string_view bytes);
  /// The end: what was cut off within a character.
  std::string finish();

 private:
  std::string rest_;  // The beginning of a character.
};

/// The first bytes of a text as one line, which is filtered like that.
std::string terminal_line(std::string_view text, std::size_t bytes_max);

}  // namespace troupe::chat
