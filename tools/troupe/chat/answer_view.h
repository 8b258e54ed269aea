#pragma once

#include <cstdint>
#include <string>

#include "model/chat/answer_parser.h"
#include "tools/troupe/chat/terminal_text.h"

namespace troupe::chat {

/// How a thought is told from the answer.
enum class Thoughts : std::uint8_t {
  kHidden,  ///< it is left out: somebody reads the answers from a pipe
  kDim,     ///< faint letters
  kMarked,  ///< a bar before each line, where a terminal shall have no colours
};

/// Writes an answer as it comes: the thought, a blank line, the answer itself, without the blank
/// lines around either. No piece leaves the terminal in another state than it found it.
class AnswerView {
 public:
  explicit AnswerView(Thoughts thoughts) : thoughts_(thoughts) {}
  /// What to print for more of the answer.
  std::string add(const AnswerDelta& delta);
  /// The same for its end.
  std::string finish();

 private:
  enum class Part : std::uint8_t { kNone, kThought, kAnswer };
  std::string add(Part part, std::string text);
  std::string drawn(const std::string& text) const;

  const Thoughts thoughts_;
  TerminalText text_;
  Part part_ = Part::kNone;  // What was printed last.
  std::string blank_;        // White space that may turn out to be within.
};

}  // namespace troupe::chat
