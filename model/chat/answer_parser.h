#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/tool_style.h"

namespace troupe {

/// More of a call of a tool.
struct CallDelta {
  std::size_t index = 0;  ///< which of the answer's calls, from 0
  std::string name;       ///< with the call's first delta only, and never empty there
  std::string id;         ///< with the first: what the model itself names the call; often nothing
  std::string arguments;  ///< JSON text, as the model writes it
  bool operator==(const CallDelta&) const = default;
};

/// A piece of an answer, told apart. Any part may be empty.
struct AnswerDelta {
  std::string reasoning;
  std::string content;
  std::vector<CallDelta> calls;
};

/// How a model writes its thoughts.
enum class ReasoningStyle : unsigned char {
  kNone,
  kThink,    ///< <think> ... </think>, then the answer: reasoning_think.h
  kHarmony,  ///< gpt-oss' channels: harmony.h
};

struct ReasoningStart {
  ReasoningStyle style = ReasoningStyle::kNone;
  bool inside = false;  ///< the generation prompt has opened the block of thoughts already
  bool over = false;    ///< or it has closed it: no thoughts will come
};

/// What an answer is made of.
struct AnswerForm {
  ReasoningStart reasoning = {};
  ToolStyle tools = ToolStyle::kNone;  ///< kNone: nobody reads calls, they are content
  ToolSketch sketch = {};              ///< of the tools that may be called
};

/// Tells thoughts, content and calls of tools in an answer that arrives in pieces. A tag may be
/// split over pieces: text that may become one is held back until it is decided. What looked like a
/// call and is none comes as content, tags and all.
class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  virtual AnswerDelta feed(std::string_view text) = 0;
  /// The end of the answer: gives out what was held back. Of a call that is cut off come the
  /// arguments that there are; what has no arguments yet is content.
  virtual AnswerDelta finish() = 0;
  /// So many bytes at the end of what was fed may still become content: that which comes next is of
  /// those before them, one behind the other.
  virtual std::size_t held() const = 0;
  /// The text so far ends within a thought.
  virtual bool thinking() const { return false; }
};

/// Null if all is content.
std::unique_ptr<AnswerParser> make_answer_parser(const AnswerForm& form);

/// The tags that the form is told by. They are special tokens in some tokenizers: decode with a
/// StreamDecoder whose `keep` holds their ids (Tokenizer::added_token_id).
std::vector<std::string_view> answer_tags(ReasoningStyle thoughts, ToolStyle tools);

/// The length of the longest end of `text` that a tag begins with: it may become the tag.
std::size_t partial_tag(std::string_view text, std::string_view tag);

}  // namespace troupe
