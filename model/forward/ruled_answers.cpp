#include "model/forward/ruled_answers.h"

#include <algorithm>
#include <utility>

#include "runtime/clock.h"

namespace troupe {

void RuledAnswers::expect(const StepPlanBody& plan) {
  for (const StepSequence& sequence : plan.sequences)
    if (sequence.sampling.rules) known_of(sequence);
}

void RuledAnswers::begin() {
  room_ = limits::kFollowedTokensMax;
  follow_left_ = kFollowMax;
  const auto owes = [](const auto& known) { return known.second.debt > Duration::zero(); };
  const auto count = std::ranges::count_if(known_, owes);
  for (auto& [slot, known] : known_)
    if (known.debt > Duration::zero()) known.debt -= std::min(known.debt, kRepaid / count);
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
  const AnswerTokens tokens(history);
  Known& known = known_of(sequence);
  if (known.answer) {
    const std::size_t had = known.answer->length();
    if (had > tokens.size() || (had > 0 && known.answer->last() != tokens[had - 1]))
      known.answer.reset();
  }
  if (!known.answer)
    if (const Status made = make(known); !made.ok()) return made.error();
  return known.answer ? follow(known, tokens) : nullptr;
}

/// Up to its last token, or null: not in this look.
RuledAnswer* RuledAnswers::follow(Known& known, const AnswerTokens& tokens) {
  RuledAnswer& answer = *known.answer;
  const std::size_t missing = tokens.size() - answer.length();
  const bool again = missing > limits::kFollowedTokensLeast;  // not what a step adds
  if (const Duration spent = answer.spent(); spent > kDear) known.debt += spent;
  if (again ? follow_left_ <= Duration::zero() : known.debt > Duration::zero()) return nullptr;
  std::size_t takes = std::min(missing, std::max(room_, limits::kFollowedTokensLeast));
  room_ -= std::min(room_, takes);
  for (; takes > 0 && (!again || follow_left_ > Duration::zero()); --takes) {
    answer.take(tokens[answer.length()]);
    if (again) follow_left_ -= answer.spent();
  }
  return answer.length() == tokens.size() ? &answer : nullptr;
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
