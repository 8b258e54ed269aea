#pragma once

#include <vector>

namespace troupe {

/// Tells, character by character, whether a text is JSON so far. Numbers and words are not looked
/// into: that quotes, commas, colons and brackets stand where they may is what counts.
class JsonSyntax {
 public:
  void step(char c);
  bool in_text() const { return state_ == State::kText; }  ///< between quotes
  bool done() const { return state_ == State::kDone; }     ///< the value has ended
  bool broken() const { return state_ == State::kBroken; }

 private:
  enum class State : unsigned char {
    kValue,
    kFirstItem,  ///< or the list's end
    kFirstKey,   ///< or the object's end
    kKey,
    kColon,
    kWord,
    kText,
    kNext,  ///< a comma, or the end of what is open
    kDone,
    kBroken
  };

  State after(char c);
  State begin_value(char c);
  State close(bool object);
  State behind_value() const { return open_.empty() ? State::kDone : State::kNext; }

  State state_ = State::kValue;
  std::vector<bool> open_;  // Of what is open: it is an object.
  bool key_ = false;        // The text is a member's name.
  bool escaped_ = false;
};

}  // namespace troupe
