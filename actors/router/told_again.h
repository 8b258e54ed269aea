#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "actors/router/choice_text.h"
#include "actors/router/journal.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/generation.h"
#include "runtime/result.h"

namespace troupe {

/// What a reader hears who comes to a request later: what the journal has of each choice beyond
/// the tokens that the reader has (`from`, by choice; others begin at 0); of a choice that has less
/// than that, only its end. A piece at a time, for text is made from the first token on. Meanwhile
/// the journal may grow.
class ToldAgain {
 public:
  explicit ToldAgain(std::vector<std::uint32_t> from) : from_(std::move(from)) {}

  /// Adds the events of the next piece, for which it looks at `tokens` at most and takes them off
  /// it. The first event carries the prompt, each choice has one at least, and none has
  /// `request_done`. True: it has told all that is there. Null tokenizer: text stays empty.
  bool tell(const Journal& journal, std::uint64_t request,
            const std::shared_ptr<const Tokenizer>& tokenizer, std::size_t& tokens,
            std::vector<GenerationEvent>& out);

 private:
  struct Choice {
    ChoiceText text;
    std::size_t at = 0;  ///< tokens of it that were looked at
    bool begun = false;
    bool over = false;
  };
  bool tell_choice(const Journal::Sequence& sequence, std::size_t from, std::size_t& tokens,
                   GenerationEvent& event);

  std::vector<std::uint32_t> from_;
  std::vector<Choice> choices_;  ///< none: it has not begun
  bool prompt_untold_ = true;
};

/// Whether the journal has of every choice what the reader has already.
bool reaches(const Journal& journal, std::uint64_t request, std::span<const std::uint32_t> from);

/// kInvalidArgument if no reader can have so many tokens: a choice has ended with fewer, or may not
/// have as many.
Status can_have(const Journal& journal, std::uint64_t request, std::span<const std::uint32_t> from);

}  // namespace troupe
