#include "model/chat/json_calls.h"

#include <algorithm>

namespace troupe {

AnswerDelta JsonCalls::feed(std::string_view text) {
  AnswerDelta delta;
  held_ += text;
  for (bool more = true; more;) {
    switch (state_) {
      case State::kStart:
        more = take_start();
        break;
      case State::kObject:
        more = take_object(delta);
        break;
      case State::kBetween:
        more = take_between();
        break;
      case State::kContent:
        content(delta, raw_);
        content(delta, held_);
        raw_.clear();
        held_.clear();
        more = false;
        break;
    }
  }
  return delta;
}

AnswerDelta JsonCalls::finish() {
  AnswerDelta delta;
  // Of calls that were told only a separator can be left.
  const bool separator = calls() > 0 && raw_.find_first_not_of(" \t\r\n,;") == std::string::npos;
  if (!separator) content(delta, raw_ + held_);
  raw_.clear();
  held_.clear();
  end(delta);
  return delta;
}

bool JsonCalls::take_start() {
  const std::size_t word = blanks_.leading(held_, kJsonBlanks);
  const std::string_view rest = std::string_view(held_).substr(word);
  const std::string_view open = list_ ? "[" : kTags[0];
  std::size_t taken = word;
  if (rest.starts_with(open)) {
    taken += open.size();
  } else if (open.starts_with(rest)) {
    return false;
  } else if (list_ || rest.front() != '{') {
    state_ = State::kContent;
    return true;
  }
  state_ = State::kObject;
  raw_ = held_.substr(0, taken);
  held_.erase(0, taken);
  return true;
}

bool JsonCalls::take_object(AnswerDelta& delta) {
  const std::size_t taken = object_.feed(held_);
  if (!begun_) raw_ += std::string_view(held_).substr(0, taken);
  held_.erase(0, taken);
  if (object_.is_call() && (begun_ || sketch_.contains(object_.name()))) {
    if (!begun_) begin_call(delta, object_.name());
    begun_ = true;
    raw_.clear();
    arguments(delta, object_.take_arguments());
  } else if (object_.is_call()) {
    state_ = State::kContent;
    return true;
  }
  if (!object_.done() && !object_.broken()) return false;
  state_ = object_.done() && begun_ ? State::kBetween : State::kContent;
  return true;
}

bool JsonCalls::take_between() {
  const std::size_t word = std::min(held_.find_first_not_of(kJsonBlanks), held_.size());
  held_.erase(0, word);
  if (held_.empty()) return false;
  if (held_.front() == (list_ ? ',' : ';')) {
    raw_ = held_.substr(0, 1);
    held_.erase(0, 1);
    object_ = {};
    begun_ = false;
    state_ = State::kObject;
    return true;
  }
  if (list_ && held_.front() == ']') held_.erase(0, 1);
  state_ = State::kContent;
  return true;
}

}  // namespace troupe
