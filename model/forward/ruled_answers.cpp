#include "model/forward/ruled_answers.h"

#include <algorithm>
#include <utility>

#include "runtime/clock.h"

namespace troupe {

void RuledAnswers::expect(const StepPlanBody& plan) {
  for (const StepSequence& sequence : plan.sequences)
    if (sequence.sampling.rules) known_of(sequence);
}

/// Rules that came again belong to an answer that may have gone on elsewhere.
RuledAnswers::Known& RuledAnswers::known_of(const StepSequence& sequence) {
  Known& known = known_[sequence.table_slot];
  const auto& rules = sequence.sampling.rules;
  if (known.sequence == sequence.id && known.rules == rules) return known;
  known = {sequence.id, rules, {}, nullptr};
  if (grammars_ != nullptr && !rules->grammar.empty())
    known.grammar = grammars_->begin(rules->grammar);
  return known;
}

Result<RuledAnswer*> RuledAnswers::find(const StepSequence& sequence, const TokenHistory& history) {
  const std::int32_t begin = std::min(history.prompt_length, history.length);
  const auto length = static_cast<std::size_t>(history.length - begin);
  const auto token = [&](std::size_t i) {
    return history.at(begin + static_cast<std::int32_t>(i));
  };
  Known& known = known_of(sequence);
  if (known.answer) {
    const std::size_t had = known.answer->length();
    if (had > length || (had > 0 && known.answer->last() != token(had - 1))) known.answer.reset();
  }
  if (!known.answer)
    if (const Status made = make(known); !made.ok()) return made.error();
  if (!known.answer) return static_cast<RuledAnswer*>(nullptr);
  RuledAnswer& answer = *known.answer;
  const std::size_t missing = length - answer.length();
  std::size_t takes = std::min(missing, std::max(room_, limits::kFollowedTokensLeast));
  room_ -= std::min(room_, takes);
  for (; takes > 0; --takes) answer.take(token(answer.length()));
  return answer.length() == length ? &answer : static_cast<RuledAnswer*>(nullptr);
}

/// Leaves it without an answer while its grammar is being compiled.
Status RuledAnswers::make(Known& known) {
  std::shared_ptr<const CompiledGrammar> grammar;
  std::shared_ptr<const Vocabulary> vocabulary;
  if (!known.rules->grammar.empty()) {
    if (grammars_ == nullptr) return internal_error("This shard follows no grammars.");
    const auto& words = grammars_->vocabulary();
    if (!words.ok()) return words.error();
    if (known.grammar.wait_for(Duration::zero()) != std::future_status::ready) return {};
    const auto& compiled = known.grammar.get();
    if (!compiled.ok() && compiled.error().code == ErrorCode::kUnavailable) {
      known.grammar = grammars_->begin(known.rules->grammar);
      return {};
    }
    if (!compiled.ok()) return compiled.error();
    grammar = *compiled;
    vocabulary = *words;
  }
  known.answer =
      std::make_unique<RuledAnswer>(known.rules, std::move(grammar), std::move(vocabulary));
  return {};
}

}  // namespace troupe
