#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/sampling_params.h"

namespace troupe {

/// Tells which tokens of an answer its content was made of: the others are those of thoughts, tags
/// and calls. A token that is a part of a character goes with the one that completes it.
///
///     tokens:  add ─► [ those of text that is still to be read, or may become content ] ─► take
class TextTokens {
 public:
  /// The next token that has text; `size`: so much text there is with it (TokenTexts::size).
  void add(const TokenOutput& token, std::size_t size);
  /// No more will come; so much text there is.
  void end(std::size_t size);
  /// So many more bytes of the text were read.
  void read(std::size_t bytes) { read_ += bytes; }
  /// The tokens of the content that came: that are `bytes` before the last `held` (AnswerParser) of
  /// those that were read. Each is given once; what can be in no content any more is forgotten.
  std::vector<TokenOutput> take(std::size_t bytes, std::size_t held);

 private:
  struct Entry {
    TokenOutput token;
    std::size_t begin, end;
    bool given = false;
  };
  static constexpr std::size_t kOpen = static_cast<std::size_t>(-1);

  std::deque<Entry> entries_;  // Those at the end may be open: their text has not come yet.
  std::size_t size_ = 0, read_ = 0;
};

}  // namespace troupe
