#include "model/chat/reasoning_think.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kWhiteSpace = " \t\r\n";

}  // namespace

AnswerDelta ThinkParser::feed(std::string_view text) {
  AnswerDelta delta;
  held_ += text;
  if (state_ == State::kStart) {
    const std::size_t word = held_blanks_.leading(held_, kWhiteSpace);
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
    const std::size_t calls = also_ends_.empty() ? std::string::npos : held_.find(also_ends_);
    const std::size_t end = std::min(close, calls);
    if (end == std::string::npos) {
      const std::size_t unsure = std::max(partial_tag(held_, kClose),
                                          also_ends_.empty() ? 0 : partial_tag(held_, also_ends_));
      delta.reasoning = held_.substr(0, held_.size() - unsure);
      held_.erase(0, held_.size() - unsure);
      return delta;
    }
    delta.reasoning = held_.substr(0, end);
    held_.erase(0, close < calls ? end + kClose.size() : end);
    unclosed_ = calls < close;
    state_ = State::kContent;
  }
  rest(delta);
  return delta;
}

/// What is held is behind the thought.
void ThinkParser::rest(AnswerDelta& delta) {
  if (!next_) {
    delta.content.swap(held_);
    return;
  }
  AnswerDelta told = next_->feed(held_);
  held_.clear();
  late_close(told.content, false);
  delta.content = std::move(told.content);
  delta.calls = std::move(told.calls);
}

/// Drops the first word of the content if it closes a thought that calls have ended.
void ThinkParser::late_close(std::string& content, bool last) {
  if (!unclosed_) return;
  late_ += content;
  content.clear();
  const std::size_t word = late_blanks_.leading(late_, kWhiteSpace);
  const std::string_view rest = std::string_view(late_).substr(word);
  const bool closes = rest.starts_with(kClose);
  if (!closes && !last && kClose.starts_with(rest)) return;
  content = closes ? std::string(rest.substr(kClose.size())) : late_;
  late_.clear();
  unclosed_ = false;
}

AnswerDelta ThinkParser::finish() {
  AnswerDelta delta;
  if (thinking()) {
    delta.reasoning.swap(held_);
    return delta;
  }
  rest(delta);
  if (!next_) return delta;
  AnswerDelta last = next_->finish();
  late_close(last.content, true);
  delta.content += last.content;
  delta.calls.insert(delta.calls.end(), std::make_move_iterator(last.calls.begin()),
                     std::make_move_iterator(last.calls.end()));
  return delta;
}

}  // namespace troupe
