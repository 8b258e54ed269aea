#include <algorithm>
#include <string>

#include "model/forward/step.h"

namespace troupe {
namespace {

Status check_sequence(const StepSequence& s, const StepBounds& b) {
  // Made only for an error: a good step allocates nothing.
  const auto wrong = [&](const std::string& what) {
    return invalid_argument("sequence " + std::to_string(s.id.value) + " of the step " + what);
  };
  if (s.tokens.empty()) return wrong("has no tokens");
  if (s.first_position < 0 || s.prompt_length < 0)
    return wrong("has a negative position or prompt length");
  const std::int64_t end =
      std::int64_t{s.first_position} + static_cast<std::int64_t>(s.tokens.size());
  if (end > b.positions)
    return wrong("reaches position " + std::to_string(end) + " of at most " +
                 std::to_string(b.positions));
  const std::int64_t blocks = (end + b.block_size - 1) / b.block_size;
  if (static_cast<std::int64_t>(s.block_table.size()) < blocks)
    return wrong("has " + std::to_string(s.block_table.size()) + " blocks, but needs " +
                 std::to_string(blocks));
  const auto bad_block = [&](std::int32_t id) { return id < 0 || id >= b.num_blocks; };
  if (std::any_of(s.block_table.begin(), s.block_table.end(), bad_block))
    return wrong("names a block that the cache of " + std::to_string(b.num_blocks) +
                 " blocks does not have");
  const auto bad_token = [&](TokenId id) { return id < 0 || id >= b.vocab; };
  if (std::any_of(s.tokens.begin(), s.tokens.end(), bad_token))
    return wrong("has a token outside the vocabulary of " + std::to_string(b.vocab));
  if (s.sampling.rules && s.sample) {
    const TokenRules& rules = *s.sampling.rules;
    const auto bad_bias = [&](const TokenBias& of) { return bad_token(of.token); };
    if (std::ranges::any_of(rules.bias, bad_bias) ||
        std::ranges::any_of(rules.allowed, bad_token) ||
        std::ranges::any_of(rules.end_tokens, bad_token) || rules.thought_token >= b.vocab ||
            rules.grammar_token >= b.vocab)
      return wrong("has rules for a token outside the vocabulary of " + std::to_string(b.vocab));
  }
  if (s.hidden_rows < 0 || static_cast<std::size_t>(s.hidden_rows) > s.tokens.size())
    return wrong("asks for hidden states of rows that it does not have");
  if (!s.prompt_logprobs) return {};
  if (s.targets.size() != s.tokens.size()) return wrong("should have one target a row");
  if (std::any_of(s.targets.begin(), s.targets.end(),
                  [&](TokenId id) { return id != -1 && bad_token(id); }))
    return wrong("has a target outside the vocabulary of " + std::to_string(b.vocab));
  return {};
}

}  // namespace

Status check_plan(const StepPlanBody& plan, const StepBounds& bounds) {
  if (plan.sequences.empty())
    return invalid_argument("step " + std::to_string(plan.step.value) + " has no sequences");
  for (const auto& sequence : plan.sequences)
    if (auto status = check_sequence(sequence, bounds); !status) return status;
  return {};
}

}  // namespace troupe
