#include "tools/troupe/chat/answer_view.h"

#include <algorithm>

namespace troupe::chat {
namespace {

constexpr std::string_view kBlanks = " \t\n";

std::string marked(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "| ";
  }
  return out;
}

}  // namespace

std::string AnswerView::add(const AnswerDelta& delta) {
  std::string out;
  if (thoughts_ != Thoughts::kHidden) out = add(Part::kThought, text_.feed(delta.reasoning));
  return out + add(Part::kAnswer, text_.feed(delta.content));
}

std::string AnswerView::finish() { return add(Part::kAnswer, text_.finish()); }

std::string AnswerView::add(Part part, std::string text) {
  std::string out;
  if (part != part_) {
    text.erase(0, std::min(text.find_first_not_of(kBlanks), text.size()));
    if (text.empty()) return {};
    if (part_ != Part::kNone) out = "\n\n";
    if (part == Part::kThought && thoughts_ == Thoughts::kMarked) out += "| ";
    part_ = part;
    blank_.clear();
  }
  const std::size_t end = text.find_last_not_of(kBlanks) + 1;
  if (end > 0) {
    out += drawn(blank_ + text.substr(0, end));
    blank_.clear();
  }
  blank_ += text.substr(end);
  return out;
}

std::string AnswerView::drawn(const std::string& text) const {
  if (part_ != Part::kThought) return text;
  return thoughts_ == Thoughts::kMarked ? marked(text) : "\x1b[2m" + text + "\x1b[0m";
}

}  // namespace troupe::chat
