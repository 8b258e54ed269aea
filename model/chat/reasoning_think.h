#pragma once

#include <array>

#include "model/chat/reasoning_parser.h"

namespace troupe {

/// As vLLM's deepseek_r1 parser does: the tags vanish, what is around them stays as it is,
/// newlines too.
///
///     starts_inside ─► [reasoning] ──</think>──► [content]
///     otherwise     ─► <think> first? ─yes─► [reasoning], ─no─► [content]
class ThinkParser final : public ReasoningParser {
 public:
  static constexpr std::array<std::string_view, 2> kTags = {"<think>", "</think>"};

  /// `starts_inside`: see ReasoningStart. A <think> that the model writes nevertheless as its first
  /// word is dropped.
  explicit ThinkParser(bool starts_inside) : starts_inside_(starts_inside) {}

  ReasoningDelta feed(std::string_view text) override;
  ReasoningDelta finish() override;

 private:
  enum class State : unsigned char { kStart, kReasoning, kContent };

  bool starts_inside_;
  State state_ = State::kStart;
  std::string held_;  // Undecided text: leading white space, and at most a part of a tag.
};

}  // namespace troupe
