#include "model/grammar/ruled_answer.h"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

void set(std::span<std::uint32_t> bits, TokenId token) {
  bits[static_cast<std::size_t>(token) / 32] |= 1u << token % 32;
}

void clear(std::span<std::uint32_t> bits, TokenId token) {
  bits[static_cast<std::size_t>(token) / 32] &= ~(1u << token % 32);
}

void set_all(std::span<std::uint32_t> bits, TokenId vocab_size) {
  std::ranges::fill(bits, ~0u);
  if (vocab_size % 32 != 0) bits.back() = (1u << vocab_size % 32) - 1;
}

bool any(std::span<const std::uint32_t> bits) {
  return std::ranges::any_of(bits, [](std::uint32_t word) { return word != 0; });
}

}  // namespace

RuledAnswer::RuledAnswer(std::shared_ptr<const TokenRules> rules,
                         std::shared_ptr<const CompiledGrammar> grammar,
                         std::shared_ptr<const Vocabulary> vocabulary)
    : rules_(std::move(rules)), vocabulary_(std::move(vocabulary)) {
  if (grammar) matcher_.emplace(std::move(grammar), vocabulary_->trie);
  if (matcher_ && !rules_->grammar_after.empty())
    state_ = rules_->thought_token < 0 ? State::kBefore : State::kFirst;
  for (const auto& word : rules_->banned) last_max_ = std::max(last_max_, word.size() - 1);
}

void RuledAnswer::take(TokenId token) {
  ++length_;
  last_token_ = token;
  if (last_max_ > 0) {
    if (last_.size() == last_max_) last_.erase(last_.begin());
    last_.push_back(token);
  }
  if (!matcher_ || state_ == State::kEnded || state_ == State::kBroken) return;
  if (state_ == State::kFirst)
    state_ = token == rules_->thought_token ? State::kBefore : State::kInside;
  if (state_ == State::kBefore) {
    if (token != rules_->grammar_token || !matcher_->accept(token))
      return look_for_beginning(token);
    state_ = State::kInside;
    return;
  }
  const TimePoint start = now();
  if (ends(token) && matcher_->complete())
    state_ = State::kEnded;
  else if (!matcher_->accept(token))
    state_ = State::kBroken;
  spent_ += now() - start;
}

/// A token that says more than the last of the texts ends it too: what follows there is before the
/// grammar's beginning.
void RuledAnswer::look_for_beginning(TokenId token) {
  if (static_cast<std::size_t>(token) >= vocabulary_->texts.size()) return;
  tail_ += vocabulary_->texts[static_cast<std::size_t>(token)];
  for (; found_ < rules_->grammar_after.size(); ++found_) {
    const std::string& wanted = rules_->grammar_after[found_];
    const std::size_t at = tail_.find(wanted);
    if (at == std::string::npos) {
      if (tail_.size() >= wanted.size()) tail_.erase(0, tail_.size() - wanted.size() + 1);
      return;
    }
    tail_.erase(0, at + wanted.size());
  }
  state_ = State::kInside;
  tail_ = {};
}

bool RuledAnswer::ends(TokenId token) const {
  return std::ranges::find(rules_->end_tokens, token) != rules_->end_tokens.end();
}

bool RuledAnswer::limits() const {
  return matcher_ || length_ < rules_->min_tokens || !rules_->allowed.empty() ||
         !rules_->banned.empty();
}

bool RuledAnswer::allowed(std::span<std::uint32_t> bits, TokenId vocab_size) {
  const auto end_with = [&](bool may) {
    for (const TokenId token : rules_->end_tokens) (may ? set : clear)(bits, token);
  };
  if (state_ == State::kBroken || state_ == State::kEnded) {
    std::ranges::fill(bits, 0);
    if (state_ == State::kEnded) end_with(true);
    return any(bits);
  }
  const bool inside = matcher_ && state_ != State::kBefore;
  const TimePoint start = now();
  if (inside)
    matcher_->allowed(bits);
  else
    set_all(bits, vocab_size);
  spent_ += now() - start;
  const bool complete = inside && matcher_->complete();
  const bool may_end = length_ >= rules_->min_tokens && (!matcher_ || complete);
  // A token that ends answers may be one that the grammar has, and the only one.
  const std::vector<std::uint32_t> all(bits.begin(), bits.end());
  if (!may_end) end_with(false);
  if (!may_end && !any(bits)) std::ranges::copy(all, bits.begin());
  if (may_end && matcher_) end_with(true);
  if (state_ == State::kFirst) set(bits, rules_->thought_token);
  if (!rules_->allowed.empty()) {
    std::vector<std::uint32_t> those(bits.size());
    for (const TokenId token : rules_->allowed) set(those, token);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] &= those[i];
  }
  ban(bits, vocab_size);
  if (any(bits)) return true;
  if (complete) end_with(true);  // nothing else can come, however short it is
  return any(bits);
}

const char* RuledAnswer::trouble() const {
  if (state_ == State::kBroken)
    return "Its grammar reads this answer in more ways than can be followed. Let its rules begin "
           "with what tells them apart.";
  return "No token of the model may come next in this answer: what its grammar, "
         "allowed_token_ids, bad_words and min_tokens ask for cannot all be met.";
}

/// Words whose tokens but the last are there already.
void RuledAnswer::ban(std::span<std::uint32_t> bits, TokenId vocab_size) const {
  for (const auto& word : rules_->banned) {
    const std::size_t before = word.size() - 1;
    if (before > last_.size() || word.back() >= vocab_size) continue;
    if (std::equal(word.begin(), word.end() - 1, last_.end() - static_cast<std::ptrdiff_t>(before)))
      clear(bits, word.back());
  }
}

}  // namespace troupe
