#include "model/chat/glm_calls.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace troupe {
namespace {

constexpr std::string_view kCall = GlmCalls::kTags[0], kCallEnd = GlmCalls::kTags[1];
constexpr std::string_view kKey = GlmCalls::kTags[2], kKeyEnd = GlmCalls::kTags[3];
constexpr std::string_view kValue = GlmCalls::kTags[4], kValueEnd = GlmCalls::kTags[5];
/// A header is a name; what is longer is none.
constexpr std::size_t kGlmHeaderBytesMax = 1024;

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kJsonBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kJsonBlanks) + 1);
}

/// What stands between the quotes of a JSON string.
std::string in_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", byte);
      out += c == '\n' ? "\\n" : escaped.data();
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

AnswerDelta GlmCalls::feed(std::string_view text) {
  AnswerDelta delta;
  held_ += text;
  take(delta, false);
  return delta;
}

/// `last`: no more will come.
void GlmCalls::take(AnswerDelta& delta, bool last) {
  for (bool more = true; more;) {
    switch (state_) {
      case State::kText:
        more = take_text(delta);
        break;
      case State::kHeader:
        more = take_header(delta);
        break;
      case State::kPairs:
        more = take_pairs(delta);
        break;
      case State::kStray:
        more = take_stray(delta);
        break;
      case State::kKey:
        more = take_key();
        break;
      case State::kAfterKey:
        more = take_after_key(delta);
        break;
      case State::kTextValue:
        more = take_text_value(delta);
        break;
      case State::kValue:
        more = take_value(delta, last);
        break;
    }
  }
}

/// Of a call that is cut off the arguments stay open where they are.
AnswerDelta GlmCalls::finish() {
  AnswerDelta delta;
  take(delta, true);
  switch (state_) {
    case State::kText:
      content(delta, held_);
      break;
    case State::kHeader:
      content(delta, std::string(kCall) + held_);
      break;
    case State::kPairs:
    case State::kStray:
      break;  // At most a part of a tag.
    case State::kKey:
      if (!held_.empty()) {
        key_ = held_;
        begin_value(delta);
      }
      break;
    case State::kAfterKey:
      begin_value(delta);
      break;
    case State::kTextValue:
      arguments(delta, held_.starts_with(kValueEnd) ? "\"" : in_quotes(held_));
      break;
    case State::kValue:
      arguments(delta, value_);
      break;
  }
  held_.clear();
  end(delta);
  return delta;
}

bool GlmCalls::take_text(AnswerDelta& delta) {
  const std::size_t at = held_.find(kCall);
  const bool found = at != std::string::npos;
  const std::size_t sure = found ? at : held_.size() - partial_tag(held_, kCall);
  content(delta, std::string_view(held_).substr(0, sure));
  held_.erase(0, sure + (found ? kCall.size() : 0));
  if (found) state_ = State::kHeader;
  return found;
}

bool GlmCalls::take_header(AnswerDelta& delta) {
  const std::size_t word = std::min(held_.find_first_not_of(kJsonBlanks), held_.size());
  const std::size_t end = held_.find_first_of("\n<", word);
  const bool too_long = end == std::string::npos && held_.size() > kGlmHeaderBytesMax;
  if (end == std::string::npos && !too_long) return false;
  const std::string_view header = trimmed(std::string_view(held_).substr(0, end));
  if (!is_tool_name(header)) {
    content(delta, kCall);
    state_ = State::kText;
    return true;
  }
  name_ = header;
  held_.erase(0, end);
  begin_call(delta, name_);
  first_ = true;
  state_ = State::kPairs;
  return true;
}

bool GlmCalls::take_pairs(AnswerDelta& delta) {
  held_.erase(0, std::min(held_.find_first_not_of(kJsonBlanks), held_.size()));
  if (held_.starts_with(kKey)) {
    held_.erase(0, kKey.size());
    key_end_ = {};
    state_ = State::kKey;
  } else if (held_.starts_with(kCallEnd)) {
    held_.erase(0, kCallEnd.size());
    arguments(delta, first_ ? "{}" : "}");
    state_ = State::kText;
  } else if (kKey.starts_with(held_) || kCallEnd.starts_with(held_)) {
    return false;
  } else {
    content(delta, std::string_view(held_).substr(0, 1));
    held_.erase(0, 1);
    state_ = State::kStray;
  }
  return true;
}

/// What does not belong into a call, up to what may be its next tag.
bool GlmCalls::take_stray(AnswerDelta& delta) {
  const std::size_t end = std::min(held_.find('<'), held_.size());
  content(delta, std::string_view(held_).substr(0, end));
  held_.erase(0, end);
  if (held_.empty()) return false;
  state_ = State::kPairs;
  return true;
}

bool GlmCalls::take_key() {
  const std::size_t end = key_end_.find(held_, kKeyEnd);
  if (end == std::string::npos) return false;
  key_ = trimmed(std::string_view(held_).substr(0, end));
  held_.erase(0, end + kKeyEnd.size());
  state_ = State::kAfterKey;
  return true;
}

bool GlmCalls::take_after_key(AnswerDelta& delta) {
  held_.erase(0, std::min(held_.find_first_not_of(kJsonBlanks), held_.size()));
  const bool follows = held_.starts_with(kValue);
  if (!follows && kValue.starts_with(held_)) return false;
  begin_value(delta);
  if (!follows) {
    arguments(delta, ": null");
    state_ = State::kPairs;
    return true;
  }
  held_.erase(0, kValue.size());
  value_.clear();
  end_ = {};
  const auto tool = sketch_.find(name_);
  const bool text = tool != sketch_.end() && tool->second.contains(key_);
  arguments(delta, text ? ": \"" : ": ");
  state_ = text ? State::kTextValue : State::kValue;
  return true;
}

void GlmCalls::begin_value(AnswerDelta& delta) {
  arguments(delta, std::exchange(first_, false) ? "{" : ", ");
  arguments(delta, "\"" + in_quotes(key_) + "\"");
}

bool GlmCalls::take_text_value(AnswerDelta& delta) {
  const std::size_t end = held_.find(kValueEnd);
  const bool found = end != std::string::npos;
  const std::size_t sure = found ? end : held_.size() - partial_tag(held_, kValueEnd);
  arguments(delta, in_quotes(std::string_view(held_).substr(0, sure)));
  held_.erase(0, sure);
  if (sure > 0) blanks_ = {};
  if (!found) return false;
  std::string_view behind = std::string_view(held_).substr(kValueEnd.size());
  behind.remove_prefix(blanks_.leading(behind, kJsonBlanks));
  const bool ends = behind.starts_with(kKey) || behind.starts_with(kCallEnd);
  if (!ends && (kKey.starts_with(behind) || kCallEnd.starts_with(behind))) return false;
  arguments(delta, ends ? "\"" : kValueEnd);
  held_.erase(0, kValueEnd.size());
  blanks_ = {};
  if (ends) state_ = State::kPairs;
  return true;
}

bool GlmCalls::take_value(AnswerDelta& delta, bool last) {
  const ArgumentsEnd::Found found = end_.find(held_, {&kValueEnd, 1}, last);
  value_ += std::string_view(held_).substr(0, found.size);
  held_.erase(0, found.size);
  if (!found.ends) return false;
  const std::string_view json = trimmed(value_);
  // The library takes a zero byte for the end of what it reads.
  if (json.find('\0') == std::string_view::npos && nlohmann::json::accept(json)) {
    arguments(delta, json);
  } else {
    arguments(delta, "\"" + in_quotes(value_) + "\"");
  }
  held_.erase(0, kValueEnd.size());
  state_ = State::kPairs;
  return true;
}

}  // namespace troupe
