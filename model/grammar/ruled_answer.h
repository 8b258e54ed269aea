#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_matcher.h"
#include "model/grammar/vocabulary.h"
#include "runtime/clock.h"
#include "runtime/ids.h"
#include "runtime/token_rules.h"

namespace troupe {

/// Where an answer stands in its rules. A function of these and of its tokens, so that it is found
/// again wherever those are. Not thread-safe.
///
///     thought_token first? ──no─────────────────────────┐
///          │ yes, or there is none                       │
///          ▼                                             │
///     grammar_after found? ──no──► all but end tokens    │
///          │ yes, or none is asked for, or the           │
///          │ grammar's own first token came              │
///          ▼                                             ▼
///     what the grammar allows; once it is complete, end tokens ──► nothing but those
class RuledAnswer {
 public:
  /// `grammar` is null if the rules have none, `vocabulary` may be null then.
  RuledAnswer(std::shared_ptr<const TokenRules> rules,
              std::shared_ptr<const CompiledGrammar> grammar,
              std::shared_ptr<const Vocabulary> vocabulary);

  const std::shared_ptr<const TokenRules>& rules() const { return rules_; }
  std::size_t length() const { return length_; }
  TokenId last() const { return last_token_; }  ///< -1: it has none

  /// The answer's next token.
  void take(TokenId token);
  /// Whether some tokens cannot come next: if not, no mask is needed.
  bool limits() const;
  /// Sets the bits of tokens that may come next, of [mask_words(vocab)] words, as
  /// GrammarMatcher::allowed does. False if there is none: the answer cannot go on.
  bool allowed(std::span<std::uint32_t> bits, TokenId vocab_size);
  /// What take() and allowed() have taken since this was last asked.
  Duration spent() { return std::exchange(spent_, Duration::zero()); }
  /// Why allowed() is false, for people.
  const char* trouble() const;

 private:
  enum class State : std::uint8_t { kFirst, kBefore, kInside, kEnded, kBroken };

  void look_for_beginning(TokenId token);
  bool ends(TokenId token) const;
  void ban(std::span<std::uint32_t> bits, TokenId vocab_size) const;

  std::shared_ptr<const TokenRules> rules_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::optional<GrammarMatcher> matcher_;  // With a grammar.
  State state_ = State::kInside;
  std::size_t length_ = 0;
  std::size_t found_ = 0;  // Texts of `grammar_after`.
  std::string tail_;       // What the next one may begin with.
  TokenId last_token_ = -1;
  std::vector<TokenId> last_;  // As many tokens as a banned word may need.
  std::size_t last_max_ = 0;
  Duration spent_{};
};

}  // namespace troupe
