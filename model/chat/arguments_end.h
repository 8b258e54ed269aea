#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "model/chat/json_syntax.h"

namespace troupe {

/// Finds the tag behind a call's arguments. In a text of JSON a tag is text. But a model may forget
/// to close one, and then the tag is one: which of both it is, is known once the text is closed and
/// JSON goes on behind it, or does not. So long what begins with the tag is held back.
///
///     {"s": "a </call> b", ...   text      {"s": "a </call> <call>{"s": "b ...   the call's end
class ArgumentsEnd {
 public:
  struct Found {
    std::size_t size = 0;  ///< so much of the text is arguments
    bool ends = false;     ///< and a tag stands behind them
  };
  /// `text`: what comes behind the arguments that were found before. `tags`: begin with '<' all.
  /// `last`: no more will come.
  Found find(std::string_view text, std::span<const std::string_view> tags, bool last);

 private:
  std::optional<Found> step(std::string_view text, bool tag);
  Found undecided(std::string_view text, std::span<const std::string_view> tags, bool last);

  JsonSyntax syntax_;
  std::size_t read_ = 0;             // Of the text.
  std::optional<std::size_t> tag_;   // Where the first one stands in a text that is open, or that
  bool closed_ = false;              // was closed by what was read last but blanks.
};

}  // namespace troupe
