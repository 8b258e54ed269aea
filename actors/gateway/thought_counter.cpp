#include "actors/gateway/thought_counter.h"

namespace troupe {

ThoughtCounter::ThoughtCounter(const AnswerForm& form) {
  if (form.reasoning.style != ReasoningStyle::kNone) parser_ = make_answer_parser(form);
}

bool ThoughtCounter::add(std::string_view text) {
  if (!parser_) return false;
  const bool before = parser_->thinking();
  static_cast<void>(parser_->feed(text));
  const bool counts = before && parser_->thinking();
  if (counts) ++count_;
  return counts;
}

}  // namespace troupe
