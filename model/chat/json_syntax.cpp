#include "model/chat/json_syntax.h"

namespace troupe {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' ||
         c == 'E';
}

}  // namespace

void JsonSyntax::step(char c) {
  if (state_ == State::kText) {
    if (c == '"' && !escaped_) state_ = key_ ? State::kColon : behind_value();
    escaped_ = c == '\\' && !escaped_;
    return;
  }
  if (state_ == State::kWord) {
    if (is_word(c)) return;
    state_ = behind_value();
  }
  if (!is_blank(c)) state_ = after(c);
}

/// The state behind what is neither blank nor within a text or a word.
JsonSyntax::State JsonSyntax::after(char c) {
  switch (state_) {
    case State::kFirstItem:
      if (c == ']') return close(false);
      [[fallthrough]];
    case State::kValue:
      return begin_value(c);
    case State::kFirstKey:
      if (c == '}') return close(true);
      [[fallthrough]];
    case State::kKey:
      key_ = true;
      return c == '"' ? State::kText : State::kBroken;
    case State::kColon:
      return c == ':' ? State::kValue : State::kBroken;
    case State::kNext:
      if (c == ',') return open_.back() ? State::kKey : State::kValue;
      if (c == '}' || c == ']') return close(c == '}');
      return State::kBroken;
    case State::kWord:
    case State::kText:
    case State::kDone:
    case State::kBroken:
      break;
  }
  return State::kBroken;
}

JsonSyntax::State JsonSyntax::begin_value(char c) {
  if (c == '{' || c == '[') {
    open_.push_back(c == '{');
    return c == '{' ? State::kFirstKey : State::kFirstItem;
  }
  key_ = false;
  if (c == '"') return State::kText;
  return is_word(c) ? State::kWord : State::kBroken;
}

JsonSyntax::State JsonSyntax::close(bool object) {
  if (open_.back() != object) return State::kBroken;
  open_.pop_back();
  return behind_value();
}

}  // namespace troupe
