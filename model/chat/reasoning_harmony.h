#pragma once

#include <array>

#include "model/chat/reasoning_parser.h"

namespace troupe {

/// An answer of several messages, each with a channel. What the channel "final" says is content,
/// all else is reasoning; headers and tags vanish.
///
///     <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
///     [header]                      [body]    [header]                            [body]
///
/// An answer that begins with no tag is content from its start.
class HarmonyParser final : public ReasoningParser {
 public:
  static constexpr std::array<std::string_view, 6> kTags = {
      "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>"};

  ReasoningDelta feed(std::string_view text) override;
  ReasoningDelta finish() override;

 private:
  enum class State : unsigned char { kStart, kHeader, kBody };

  bool take_header();
  bool take_body(ReasoningDelta& delta);
  std::string& body(ReasoningDelta& delta) const {
    return final_ ? delta.content : delta.reasoning;
  }

  State state_ = State::kStart;
  bool final_ = true;  // The body is the channel "final".
  std::string held_;   // A header that is not complete, or a part of a tag.
};

}  // namespace troupe
