#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// A piece of an answer, told apart. Either part may be empty.
struct ReasoningDelta {
  std::string reasoning;  ///< inside <think> ... </think>
  std::string content;    ///< after it
};

/// Splits an answer that arrives in pieces into thoughts and content, as vLLM's deepseek_r1 parser
/// does: the tags vanish, what is around them stays as it is, newlines too.
///
///     starts_inside ─► [reasoning] ──</think>──► [content]
///     otherwise     ─► <think> first? ─yes─► [reasoning], ─no─► [content]
///
/// The tags are special tokens in some tokenizers, so decode with a StreamDecoder whose `keep`
/// holds the ids of "<think>" and "</think>" (Tokenizer::added_token_id). A tag may be split over
/// pieces: text that may become one is held back until it is decided.
class ReasoningParser {
 public:
  /// `starts_inside`: the generation prompt has opened the block (ChatFormat::opens_think). A
  /// <think> that the model writes nevertheless as its first word is dropped.
  explicit ReasoningParser(bool starts_inside);

  ReasoningDelta feed(std::string_view text);
  /// The end of the answer: gives out what was held back.
  ReasoningDelta finish();

  /// Whether text that comes next would be reasoning.
  bool inside() const {
    return state_ == State::kReasoning || (state_ == State::kStart && starts_inside_);
  }

 private:
  enum class State : unsigned char { kStart, kReasoning, kContent };

  bool starts_inside_;
  State state_ = State::kStart;
  std::string held_;  // Undecided text: leading white space, and at most a part of a tag.
};

}  // namespace troupe
