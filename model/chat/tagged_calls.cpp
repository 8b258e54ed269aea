#include "model/chat/tagged_calls.h"

#include <algorithm>

namespace troupe {
namespace {

/// A header is a name and little more; what is longer is none.
constexpr std::size_t kHeaderBytesMax = 1024;

bool may_become(std::string_view text, std::string_view tag) { return tag.starts_with(text); }

}  // namespace

AnswerDelta TaggedCalls::feed(std::string_view text) {
  AnswerDelta delta;
  held_ += text;
  take(delta, false);
  return delta;
}

/// `last`: no more will come.
void TaggedCalls::take(AnswerDelta& delta, bool last) {
  for (bool more = true; more;) {
    switch (state_) {
      case State::kText:
        more = take_text(delta);
        break;
      case State::kSection:
        more = take_section(delta);
        break;
      case State::kHeader:
        more = take_header(delta);
        break;
      case State::kArguments:
        more = take_arguments(delta, last);
        break;
    }
  }
}

AnswerDelta TaggedCalls::finish() {
  AnswerDelta delta;
  take(delta, true);
  if (state_ != State::kArguments) {
    raw_ += held_;
    // Of a section whose calls were told only white space and a part of a tag can be left.
    const bool between = state_ == State::kSection && calls() > 0;
    if (!between) content(delta, raw_);
  }
  held_.clear();
  raw_.clear();
  end(delta);
  return delta;
}

bool TaggedCalls::skip(std::string_view tag) {
  if (!held_.starts_with(tag)) return false;
  raw_ += tag;
  held_.erase(0, tag.size());
  return true;
}

/// What was read is no call.
void TaggedCalls::no_call(AnswerDelta& delta) {
  content(delta, raw_);
  raw_.clear();
  state_ = State::kText;
}

bool TaggedCalls::take_text(AnswerDelta& delta) {
  // Some models leave the section's tag out.
  const std::size_t at = std::min(held_.find(tags_.section_begin), held_.find(tags_.call_begin));
  std::size_t sure = at;
  if (at == std::string::npos)
    sure = held_.size() -
           std::max(partial_tag(held_, tags_.section_begin), partial_tag(held_, tags_.call_begin));
  content(delta, std::string_view(held_).substr(0, sure));
  held_.erase(0, sure);
  if (at == std::string::npos) return false;
  state_ = skip(tags_.section_begin) ? State::kSection : State::kHeader;
  if (state_ == State::kHeader) skip(tags_.call_begin);
  return true;
}

bool TaggedCalls::take_section(AnswerDelta& delta) {
  const std::size_t word = std::min(held_.find_first_not_of(kJsonBlanks), held_.size());
  raw_ += std::string_view(held_).substr(0, word);
  held_.erase(0, word);
  if (skip(tags_.call_begin)) {
    state_ = State::kHeader;
  } else if (skip(tags_.section_end)) {
    raw_.clear();
    state_ = State::kText;
  } else if (may_become(held_, tags_.call_begin) || may_become(held_, tags_.section_end)) {
    return false;
  } else {
    no_call(delta);
  }
  return true;
}

bool TaggedCalls::take_header(AnswerDelta& delta) {
  const std::size_t end = held_.find(tags_.arguments_begin);
  const std::size_t broken = std::min(held_.find(tags_.call_end), held_.find(tags_.call_begin));
  if (broken < end || (end == std::string::npos && held_.size() > kHeaderBytesMax)) {
    no_call(delta);
    return true;
  }
  if (end == std::string::npos) return false;
  std::string_view header = std::string_view(held_).substr(0, end);
  header.remove_prefix(std::min(header.find_first_not_of(kJsonBlanks), header.size()));
  header = header.substr(0, header.find_last_not_of(kJsonBlanks) + 1);
  Head head = read_head(header);
  if (head.name.empty()) {
    no_call(delta);
    return true;
  }
  begin_call(delta, std::move(head.name), std::move(head.id));
  raw_.clear();
  held_.erase(0, end + tags_.arguments_begin.size());
  state_ = State::kArguments;
  part_ = Part::kBefore;
  extent_ = {};
  end_ = {};
  return true;
}

bool TaggedCalls::take_arguments(AnswerDelta& delta, bool last) {
  const std::array tags = {tags_.call_end, tags_.call_begin, tags_.section_end};
  const ArgumentsEnd::Found found = end_.find(held_, tags, last);
  add_arguments(delta, std::string_view(held_).substr(0, found.size));
  held_.erase(0, found.size);
  if (!found.ends) return false;
  if (part_ == Part::kBefore) arguments(delta, "{}");
  if (held_.starts_with(tags_.call_end)) held_.erase(0, tags_.call_end.size());
  state_ = State::kSection;
  return true;
}

/// The JSON object, or all of it if there is none. Around it stand white space and, with DeepSeek
/// V3, the fence of a block of code.
void TaggedCalls::add_arguments(AnswerDelta& delta, std::string_view text) {
  if (part_ == Part::kBefore) {
    text.remove_prefix(std::min(text.find_first_not_of(kJsonBlanks), text.size()));
    if (text.empty()) return;
    part_ = text.front() == '{' ? Part::kJson : Part::kRaw;
  }
  if (part_ == Part::kRaw) return arguments(delta, text);
  if (part_ == Part::kJson) {
    std::size_t size = 0;
    while (size < text.size() && part_ == Part::kJson)
      if (extent_.step(text[size++]) == JsonExtent::Step::kEnds) part_ = Part::kAfter;
    arguments(delta, text.substr(0, size));
    text.remove_prefix(size);
  }
  if (part_ == Part::kAfter) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n`"), text.size()));
    if (!text.empty()) part_ = Part::kStray;
  }
  if (part_ == Part::kStray) content(delta, text);
}

}  // namespace troupe
