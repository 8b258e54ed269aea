#pragma once

#include <array>
#include <string>
#include <string_view>

#include "model/chat/call_object.h"
#include "model/chat/call_parser.h"

namespace troupe {

/// Calls as Qwen and Hermes write them, and vLLM's parser hermes reads them:
///
///     <tool_call>
///     {"name": "f", "arguments": {...}}
///     </tool_call>
///
/// A tag inside of the arguments' texts is text.
class HermesCalls final : public CallParser {
 public:
  static constexpr std::array<std::string_view, 2> kTags = {"<tool_call>", "</tool_call>"};

  AnswerDelta feed(std::string_view text) override;
  AnswerDelta finish() override;

 private:
  enum class State : unsigned char { kText, kObject, kAfter };

  std::size_t undecided() const override { return raw_.size() + held_.size(); }
  bool take_text(AnswerDelta& delta);
  bool take_object(AnswerDelta& delta);
  bool take_after(AnswerDelta& delta);

  State state_ = State::kText;
  CallObject object_;
  bool begun_ = false;  // The call was told.
  std::string held_;    // Not decided yet.
  std::string raw_;     // The tag and the object, while it is not known to be a call.
};

}  // namespace troupe
