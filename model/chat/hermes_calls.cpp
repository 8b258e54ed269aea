#include "model/chat/hermes_calls.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::string_view kBegin = HermesCalls::kTags[0];
constexpr std::string_view kEnd = HermesCalls::kTags[1];

}  // namespace

AnswerDelta HermesCalls::feed(std::string_view text) {
  AnswerDelta delta;
  held_ += text;
  for (bool more = true; more;) {
    switch (state_) {
      case State::kText:
        more = take_text(delta);
        break;
      case State::kObject:
        more = take_object(delta);
        break;
      case State::kAfter:
        more = take_after(delta);
        break;
    }
  }
  return delta;
}

AnswerDelta HermesCalls::finish() {
  AnswerDelta delta;
  // Behind a call only white space and a part of the tag can be left.
  if (state_ != State::kAfter) content(delta, raw_ + held_);
  raw_.clear();
  held_.clear();
  end(delta);
  return delta;
}

bool HermesCalls::take_text(AnswerDelta& delta) {
  const std::size_t at = held_.find(kBegin);
  const bool found = at != std::string::npos;
  const std::size_t sure = found ? at : held_.size() - partial_tag(held_, kBegin);
  content(delta, std::string_view(held_).substr(0, sure));
  held_.erase(0, sure);
  if (!found) return false;
  held_.erase(0, kBegin.size());
  raw_ = kBegin;
  object_ = {};
  begun_ = false;
  state_ = State::kObject;
  return true;
}

bool HermesCalls::take_object(AnswerDelta& delta) {
  const std::size_t taken = object_.feed(held_);
  if (!begun_) raw_ += std::string_view(held_).substr(0, taken);
  held_.erase(0, taken);
  if (object_.is_call()) {
    if (!begun_) begin_call(delta, object_.name());
    begun_ = true;
    raw_.clear();
    arguments(delta, object_.take_arguments());
  }
  if (!object_.done() && !object_.broken()) return false;
  // What has begun as a call stays one. An object without a name is none.
  if (!begun_) content(delta, raw_);
  raw_.clear();
  state_ = begun_ ? State::kAfter : State::kText;
  return true;
}

/// To the closing tag; one that was forgotten does not hide the next call.
bool HermesCalls::take_after(AnswerDelta& delta) {
  const std::size_t closes = held_.find(kEnd), opens = held_.find(kBegin);
  const bool found = std::min(closes, opens) != std::string::npos;
  std::size_t sure = std::min(closes, opens);
  if (!found) sure = held_.size() - std::max(partial_tag(held_, kEnd), partial_tag(held_, kBegin));
  content(delta, std::string_view(held_).substr(0, sure));
  held_.erase(0, sure + (closes < opens ? kEnd.size() : 0));
  if (found) state_ = State::kText;
  return found;
}

}  // namespace troupe
