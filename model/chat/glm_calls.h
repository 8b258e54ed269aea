#pragma once

#include <array>
#include <string>
#include <string_view>

#include "model/chat/arguments_end.h"
#include "model/chat/call_parser.h"
#include "model/chat/looked_through.h"

namespace troupe {

/// Calls as GLM-4.5 and later write them, and vLLM's parser glm45 reads them:
///
///     <tool_call>NAME
///     <arg_key>key</arg_key>
///     <arg_value>value</arg_value>
///     </tool_call>
///
/// Values are JSON, but those that are texts by their schema stand there as they are; so does what
/// is no JSON. The arguments come as one object. The tag of a value's end is text in texts of
/// JSON, as ArgumentsEnd tells, and in a text without quotes where no key and no end of the call
/// comes behind it.
class GlmCalls final : public CallParser {
 public:
  static constexpr std::array<std::string_view, 6> kTags = {
      "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};

  explicit GlmCalls(ToolSketch sketch) : sketch_(std::move(sketch)) {}
  AnswerDelta feed(std::string_view text) override;
  AnswerDelta finish() override;

 private:
  enum class State : unsigned char {
    kText,
    kHeader,
    kPairs,
    kStray,
    kKey,
    kAfterKey,
    kTextValue,
    kValue
  };

  std::size_t undecided() const override {
    return held_.size() + (state_ == State::kHeader ? kTags[0].size() : 0);
  }
  void take(AnswerDelta& delta, bool last);
  bool take_text(AnswerDelta& delta);
  bool take_header(AnswerDelta& delta);
  bool take_pairs(AnswerDelta& delta);
  bool take_stray(AnswerDelta& delta);
  bool take_key();
  bool take_after_key(AnswerDelta& delta);
  bool take_text_value(AnswerDelta& delta);
  bool take_value(AnswerDelta& delta, bool last);
  void begin_value(AnswerDelta& delta);

  const ToolSketch sketch_;
  State state_ = State::kText;
  std::string held_;  // Not decided yet.
  LookedThrough key_end_, blanks_;  // Of a key, and of what is behind a text's end.
  std::string name_, key_;
  std::string value_;  // So far.
  ArgumentsEnd end_;   // Of the value.
  bool first_ = true;  // The next pair is the call's first.
};

}  // namespace troupe
