#pragma once

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
#include "runtime/ids.h"
#include "runtime/limits.h"
#include "runtime/result.h"
#include "runtime/step.h"

namespace troupe {

/// Where the answers of a shard's sequences stand in their rules. It is found from a sequence's
/// tokens when it comes here, and goes on with them; one a table slot, so that there are no more
/// of them than sequences ran at once. Nothing waits here: a token whose grammar is being compiled,
/// or whose answer is long and new here, is asked for again.
class RuledAnswers {
 public:
  void use(std::shared_ptr<AnswerGrammars> grammars) { grammars_ = std::move(grammars); }

  /// The grammars of a plan's newcomers will be asked for.
  void expect(const StepPlanBody& plan);
  /// Before the questions of one look at logits.
  void begin() { room_ = limits::kFollowedTokensMax; }
  /// Of a sequence that has rules, up to its last token; null: not yet. Valid until the next one of
  /// its slot.
  Result<RuledAnswer*> find(const StepSequence& sequence, const TokenHistory& history);

 private:
  struct Known {
    SequenceId sequence;
    std::shared_ptr<const TokenRules> rules;
    std::shared_future<AnswerGrammars::Grammar> grammar;  ///< without one not valid
    std::unique_ptr<RuledAnswer> answer;                  ///< once that is compiled
  };
  Known& known_of(const StepSequence& sequence);
  Status make(Known& known);

  std::shared_ptr<AnswerGrammars> grammars_;
  std::map<std::int32_t, Known> known_;  // by table slot
  std::size_t room_ = 0;                 // for tokens to follow
};

}  // namespace troupe
