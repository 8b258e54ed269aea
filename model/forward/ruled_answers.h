#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "model/grammar/answer_grammars.h"
#include "model/grammar/ruled_answer.h"
#include "model/sampler.h"
#include "runtime/clock.h"
#include "runtime/ids.h"
#include "runtime/limits.h"
#include "runtime/result.h"
#include "runtime/step.h"

namespace troupe {

/// Where the answers of a shard's sequences stand in their rules. It is found from a sequence's
/// tokens when it comes here, and goes on with them; one a table slot, so that there are no more
/// of them than sequences ran at once. Nothing waits here: a token whose grammar is being compiled,
/// whose answer is long and new here, or whose grammar takes long at every token, is asked for
/// again.
class RuledAnswers {
 public:
  void use(std::shared_ptr<AnswerGrammars> grammars) { grammars_ = std::move(grammars); }

  /// The grammars of a plan's newcomers will be asked for.
  void expect(const StepPlanBody& plan);
  /// Before the questions of one look at logits.
  void begin();
  /// Of a sequence that has rules, up to its last token; null: not yet. Valid until the next one of
  /// its slot.
  Result<RuledAnswer*> find(const StepSequence& sequence, const TokenHistory& history);

 private:
  /// What following answers again may take in one look at logits.
  static constexpr Duration kFollowMax = std::chrono::milliseconds(100);
  /// An answer whose token or mask took longer owes that, and waits until it is repaid: so much a
  /// look, to all of them together. So grammars add this to the others' steps, on average.
  static constexpr Duration kDear = std::chrono::milliseconds(2);
  static constexpr Duration kRepaid = std::chrono::milliseconds(10);

  struct Known {
    SequenceId sequence;
    std::shared_ptr<const TokenRules> rules;
    std::shared_future<AnswerGrammars::Grammar> grammar;  ///< without one not valid
    std::unique_ptr<RuledAnswer> answer;                  ///< once that is compiled
    Duration debt{};
  };
  /// The tokens of a sequence behind its prompt.
  class AnswerTokens {
   public:
    explicit AnswerTokens(const TokenHistory& history)
        : history_(history), begin_(std::min(history.prompt_length, history.length)) {}
    std::size_t size() const { return static_cast<std::size_t>(history_.length - begin_); }
    TokenId operator[](std::size_t i) const {
      return history_.at(begin_ + static_cast<std::int32_t>(i));
    }

   private:
    const TokenHistory& history_;
    std::int32_t begin_;
  };

  Known& known_of(const StepSequence& sequence);
  Status make(Known& known);
  RuledAnswer* follow(Known& known, const AnswerTokens& tokens);

  std::shared_ptr<AnswerGrammars> grammars_;
  std::map<std::int32_t, Known> known_;  // by table slot
  std::size_t room_ = 0;                 // for tokens to follow
  Duration follow_left_{};               // of kFollowMax
};

}  // namespace troupe
