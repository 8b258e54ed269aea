#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/router/stop_matcher.h"

namespace troupe {

/// The text that the Router gives out with each token of an answer (ChoiceText), found again from
/// the tokens: so it is the same for whoever reads them, in whichever pieces they come.
class TokenTexts {
 public:
  struct Options {
    std::vector<std::string> stops = {};
    bool shows_end = false;        ///< include_stop_str_in_output
    std::uint32_t min_tokens = 0;  ///< before which no stop string counts
  };
  explicit TokenTexts(Options options);

  /// The next token, with its bytes. One that ends the answer (`ends`) has no text, unless a stop
  /// string did it.
  std::string feed(std::string_view bytes, bool ends);
  /// What is left at the end.
  std::string finish();
  /// So much text its tokens have, with what is held back since it may become a stop string, but
  /// without a character that is not whole yet.
  std::size_t size() const { return size_; }
  /// The stop string that ended it; empty: none did.
  std::string_view stop() const { return stops_.found(); }

 private:
  const bool shows_end_;
  std::uint32_t free_;  // Tokens until a stop string counts.
  StopMatcher stops_;
  std::string bytes_;  // Of a character that is not whole.
  std::size_t size_ = 0;
};

}  // namespace troupe
