#pragma once

#include <string>
#include <string_view>

#include "model/chat/answer_parser.h"

namespace troupe {

inline constexpr std::string_view kJsonBlanks = " \t\r\n";

/// What the parsers of calls share: calls are counted, and white space around them is left out of
/// the content. Models put line breaks between a text and a call, and between calls.
class CallParser : public AnswerParser {
 public:
  std::size_t held() const final { return blank_.size() + undecided(); }

 protected:
  /// Behind that white space: what may be a call.
  virtual std::size_t undecided() const = 0;
  /// White space at the end is held back until it is known what follows.
  void content(AnswerDelta& delta, std::string_view text) {
    const std::size_t last = text.find_last_not_of(kJsonBlanks);
    if (last != std::string_view::npos) {
      delta.content += blank_;
      blank_.clear();
      delta.content += text.substr(0, last + 1);
      text.remove_prefix(last + 1);
    }
    blank_ += text;
  }
  void begin_call(AnswerDelta& delta, std::string name, std::string id = {}) {
    blank_.clear();
    delta.calls.push_back({calls_++, std::move(name), std::move(id), {}});
  }
  /// More arguments of the call that began last.
  void arguments(AnswerDelta& delta, std::string_view text) {
    if (text.empty()) return;
    if (delta.calls.empty()) delta.calls.push_back({calls_ - 1, {}, {}, {}});
    delta.calls.back().arguments += text;
  }
  std::size_t calls() const { return calls_; }
  /// The answer's end: white space is content where there are no calls.
  void end(AnswerDelta& delta) {
    if (calls_ == 0) delta.content += blank_;
    blank_.clear();
  }

 private:
  std::size_t calls_ = 0;
  std::string blank_;
};

}  // namespace troupe
