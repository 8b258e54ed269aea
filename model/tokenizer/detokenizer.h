#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace troupe {

/// Turns tokens into text as they arrive. It emits whole characters only: bytes that may still
/// become a character wait for the next token. All deltas together equal Tokenizer::decode of all
/// tokens.
class StreamDecoder {
 public:
  struct Options {
    bool skip_special_tokens = true;
    /// Special tokens that are written out although special ones are skipped; <think> and </think>
    /// where a ReasoningParser reads the text.
    std::vector<TokenId> keep;
  };

  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, Options options);

  /// The text that this token completes; may be empty.
  std::string feed(TokenId token);

  /// The end of the stream: an incomplete character comes out as U+FFFD. feed() may start again.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Options options_;
  std::string pending_;  // A proper prefix of one character: at most 3 bytes.
};

}  // namespace troupe
