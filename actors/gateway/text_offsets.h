#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// Where the tokens of a text begin in it, in characters (code points). A token that begins within
/// a character is where that character is.
class TextOffsets {
 public:
  /// The next token's place; `bytes` is what it adds to the text, possibly a part of a character.
  std::size_t next(std::string_view bytes);
  /// A text ends and another follows: what is still half a character is one.
  void end_text();

 private:
  std::size_t characters_ = 0;  // Before partial_.
  std::string partial_;         // The beginning of a character.
};

}  // namespace troupe
