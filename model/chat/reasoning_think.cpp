#include "model/chat/reasoning_think.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kWhiteSpace = " \t\r\n";

}  // namespace

ReasoningDelta ThinkParser::feed(std::string_view text) {
  ReasoningDelta delta;
  held_ += text;
  if (state_ == State::kStart) {
    const std::size_t word = std::min(held_.find_first_not_of(kWhiteSpace), held_.size());
    const std::string_view rest = std::string_view(held_).substr(word);
    if (rest.starts_with(kOpen)) {
      held_.erase(0, word + kOpen.size());
      state_ = State::kReasoning;
    } else if (kOpen.starts_with(rest)) {
      return delta;  // White space so far, and perhaps a part of the tag.
    } else {
      state_ = starts_inside_ ? State::kReasoning : State::kContent;
    }
  }
  if (state_ == State::kReasoning) {
    const std::size_t close = held_.find(kClose);
    if (close == std::string::npos) {
      const std::size_t sure = held_.size() - partial_tag(held_, kClose);
      delta.reasoning = held_.substr(0, sure);
      held_.erase(0, sure);
      return delta;
    }
    delta.reasoning = held_.substr(0, close);
    held_.erase(0, close + kClose.size());
    state_ = State::kContent;
  }
  delta.content.swap(held_);
  return delta;
}

ReasoningDelta ThinkParser::finish() {
  ReasoningDelta delta;
  const bool inside = state_ == State::kReasoning || (state_ == State::kStart && starts_inside_);
  (inside ? delta.reasoning : delta.content).swap(held_);
  return delta;
}

}  // namespace troupe
