#pragma once

#include <array>

#include "model/chat/answer_parser.h"
#include "model/chat/looked_through.h"

namespace troupe {

/// As vLLM's deepseek_r1 parser does: the tags vanish, what is around them stays as it is,
/// newlines too.
///
///     starts_inside ─► [reasoning] ──</think> or calls──► [content]
///     otherwise     ─► <think> first? ─yes─► [reasoning], ─no─► [content] ─► next
class ThinkParser final : public AnswerParser {
 public:
  static constexpr std::array<std::string_view, 2> kTags = {"<think>", "</think>"};

  /// `starts_inside`: see ReasoningStart. A <think> that the model writes nevertheless as its first
  /// word is dropped. `next` reads what is not thought; null: it is content. `also_ends`: a tag of
  /// its own at which a thought that was not closed ends, too; "": none. A </think> right behind
  /// the calls is dropped then.
  ThinkParser(bool starts_inside, std::unique_ptr<AnswerParser> next, std::string_view also_ends)
      : starts_inside_(starts_inside), next_(std::move(next)), also_ends_(also_ends) {}

  AnswerDelta feed(std::string_view text) override;
  AnswerDelta finish() override;
  std::size_t held() const override {
    return held_.size() + late_.size() + (next_ ? next_->held() : 0);
  }
  bool thinking() const override {
    return state_ == State::kReasoning || (state_ == State::kStart && starts_inside_);
  }

 private:
  enum class State : unsigned char { kStart, kReasoning, kContent };

  void rest(AnswerDelta& delta);
  void late_close(std::string& content, bool last);

  const bool starts_inside_;
  const std::unique_ptr<AnswerParser> next_;
  const std::string_view also_ends_;
  State state_ = State::kStart;
  bool unclosed_ = false;  // Calls ended the thought, and nothing was said since.
  std::string late_;       // White space behind them, and at most a part of </think>.
  std::string held_;  // Undecided text: leading white space, and at most a part of a tag.
  LookedThrough held_blanks_, late_blanks_;  // What they begin with.
};

}  // namespace troupe
