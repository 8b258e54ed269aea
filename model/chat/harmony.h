#pragma once

#include <array>

#include "model/chat/arguments_end.h"
#include "model/chat/call_parser.h"

namespace troupe {

/// gpt-oss' answer of several messages, each with a channel. What the channel "final" says is
/// content, what goes to a function is a call if calls are read, and all else is reasoning; headers
/// and tags vanish.
///
///     <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
///     [header]                      [body]    [header]                            [body]
///     <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
///
/// The receiver may stand before the channel, too. An answer that begins with no tag is content
/// from its start. Tags in the texts of a call's JSON are text.
class HarmonyParser final : public CallParser {
 public:
  static constexpr std::array<std::string_view, 7> kTags = {
      "<|channel|>", "<|message|>", "<|start|>",    "<|end|>",
      "<|return|>",  "<|call|>",    "<|constrain|>"};
  /// What ends a message's body; <|start|> does where <|end|> was left out.
  static constexpr std::array<std::string_view, 4> kBodyEnds = {"<|end|>", "<|return|>", "<|call|>",
                                                                "<|start|>"};
  /// Content begins after these, one after the other: between them may stand what it is.
  static constexpr std::array<std::string_view, 2> kFinal = {"<|channel|>final", "<|message|>"};

  explicit HarmonyParser(bool reads_calls) : reads_calls_(reads_calls) {}

  AnswerDelta feed(std::string_view text) override;
  AnswerDelta finish() override;
  bool thinking() const override { return state_ == State::kBody && body_ == Body::kReasoning; }

 private:
  enum class State : unsigned char { kStart, kHeader, kBody };
  enum class Body : unsigned char { kContent, kReasoning, kCall };

  std::size_t undecided() const override { return held_.size(); }
  bool take_header(AnswerDelta& delta);
  void take(AnswerDelta& delta, bool last);
  bool take_body(AnswerDelta& delta, bool last);
  void add_body(AnswerDelta& delta, std::string_view text);

  const bool reads_calls_;
  State state_ = State::kStart;
  Body body_ = Body::kContent;
  ArgumentsEnd end_;       // Of a call's body.
  bool empty_ = true;      // Nothing of the body has come.
  bool too_long_ = false;  // What is read is no header, but has to end as one.
  std::string held_;       // A header that is not complete, or a part of a tag.
};

}  // namespace troupe
