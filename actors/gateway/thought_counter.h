#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "model/chat/answer_parser.h"

namespace troupe {

/// Counts the tokens of an answer's thoughts: those before and behind which the model thinks. So a
/// tag that is one token is none of them. The same tokens give the same count, however they come.
class ThoughtCounter {
 public:
  explicit ThoughtCounter(const AnswerForm& form);

  /// The next token, with the text that it adds; true if it is counted.
  bool add(std::string_view text);
  std::uint64_t count() const { return count_; }

 private:
  std::unique_ptr<AnswerParser> parser_;  // Null: there are no thoughts.
  std::uint64_t count_ = 0;
};

}  // namespace troupe
