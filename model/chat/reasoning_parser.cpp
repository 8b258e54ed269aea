#include "model/chat/reasoning_parser.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kWhiteSpace = " \t\r\n";

/// The length of the longest end of `text` that a tag begins with: it may become the tag.
std::size_t partial_tag(std::string_view text, std::string_view tag) {
  for (std::size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.ends_with(tag.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

ReasoningParser::ReasoningParser(bool starts_inside) : starts_inside_(starts_inside) {}

ReasoningDelta ReasoningParser::feed(std::string_view text) {
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

ReasoningDelta ReasoningParser::finish() {
  ReasoningDelta delta;
  (inside() ? delta.reasoning : delta.content).swap(held_);
  return delta;
}

}  // namespace troupe
