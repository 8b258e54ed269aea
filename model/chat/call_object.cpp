#include "model/chat/call_object.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "model/chat/call_parser.h"

namespace troupe {
namespace {

/// The text in a JSON string; the string itself if it is none.
std::string unquoted(const std::string& json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  return value.is_string() ? value.get<std::string>() : json;
}

}  // namespace

std::size_t CallObject::feed(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i)
    if (done() || broken() || !take(text[i])) return i;
  return text.size();
}

std::string CallObject::take_arguments() {
  if (done() && !std::exchange(begun_, true)) arguments_ = "{}";
  return std::exchange(arguments_, {});
}

CallObject::Member CallObject::member(std::string_view key) const {
  if (key == "name" && name_.empty()) return Member::kName;
  if ((key == "arguments" || key == "parameters") && !begun_) return Member::kArguments;
  return Member::kOther;
}

/// False if the character is not the object's.
bool CallObject::take(char c) {
  const bool blank = kJsonBlanks.find(c) != std::string_view::npos;
  const auto expect = [&](char wanted, State next) {
    if (!blank) state_ = c == wanted ? next : State::kBroken;
    return state_ != State::kBroken;
  };
  switch (state_) {
    case State::kOpen:
      return expect('{', State::kKey);
    case State::kKey:
      if (c == '}') {
        state_ = State::kDone;
        return true;
      }
      text_.clear();
      return expect('"', State::kInKey);
    case State::kInKey:
      if (c == '"' && !escaped_) {
        member_ = member(text_);
        state_ = State::kColon;
        return true;
      }
      escaped_ = c == '\\' && !escaped_;
      text_ += c;
      return true;
    case State::kColon:
      return expect(':', State::kValue);
    case State::kValue:
      if (blank) return true;
      extent_ = {};
      text_.clear();
      quoted_ = c == '"';
      state_ = State::kInValue;
      return take_value(c);
    case State::kInValue:
      return take_value(c);
    case State::kNext:
      if (c == '}') {
        state_ = State::kDone;
        return true;
      }
      return expect(',', State::kKey);
    case State::kDone:
    case State::kBroken:
      break;
  }
  return false;
}

bool CallObject::take_value(char c) {
  const JsonExtent::Step step = extent_.step(c);
  if (step == JsonExtent::Step::kEndedBefore) {
    end_value();
    return !broken() && take(c);
  }
  const bool streams = member_ == Member::kArguments && !quoted_ && !extent_.is_word();
  if (streams) begun_ = true;
  (streams ? arguments_ : text_) += c;
  if (step == JsonExtent::Step::kEnds) end_value();
  return !broken();
}

void CallObject::end_value() {
  state_ = State::kNext;
  if (member_ == Member::kName) {
    name_ = unquoted(text_);
    if (!quoted_ || !is_tool_name(name_)) state_ = State::kBroken;
  } else if (member_ == Member::kArguments && !std::exchange(begun_, true)) {
    arguments_ = text_ == "null" ? "{}" : unquoted(text_);
  }
}

}  // namespace troupe
