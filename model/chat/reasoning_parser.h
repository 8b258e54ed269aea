#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// A piece of an answer, told apart. Either part may be empty.
struct ReasoningDelta {
  std::string reasoning;
  std::string content;
};

/// How a model writes its thoughts.
enum class ReasoningStyle : unsigned char {
  kNone,
  kThink,    ///< <think> ... </think>, then the answer: reasoning_think.h
  kHarmony,  ///< gpt-oss' channels: reasoning_harmony.h
};

struct ReasoningStart {
  ReasoningStyle style = ReasoningStyle::kNone;
  bool inside = false;  ///< the generation prompt has opened the block of thoughts already
};

/// Splits an answer that arrives in pieces into thoughts and content. A tag may be split over
/// pieces: text that may become one is held back until it is decided.
class ReasoningParser {
 public:
  virtual ~ReasoningParser() = default;
  virtual ReasoningDelta feed(std::string_view text) = 0;
  /// The end of the answer: gives out what was held back.
  virtual ReasoningDelta finish() = 0;
};

/// Null for kNone.
std::unique_ptr<ReasoningParser> make_reasoning_parser(ReasoningStart start);

/// The tags that a style is told by. They are special tokens in some tokenizers: decode with a
/// StreamDecoder whose `keep` holds their ids (Tokenizer::added_token_id).
std::span<const std::string_view> reasoning_tags(ReasoningStyle style);

/// The length of the longest end of `text` that a tag begins with: it may become the tag.
std::size_t partial_tag(std::string_view text, std::string_view tag);

}  // namespace troupe
