#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/grammar/grammar_writer.h"
#include "model/grammar/regex.h"
#include "runtime/result.h"

namespace troupe {

/// A deterministic automaton over characters: what a text must match when one expression does not
/// say it all. State 0 is the first; a character without an edge leads nowhere.
class TextAutomaton {
 public:
  /// Larger ones are refused, and work beyond this many steps.
  static constexpr std::size_t kStatesMax = 4'000;
  static constexpr std::size_t kStepsMax = 500'000;

  enum class Match : unsigned char { kWhole, kSearch };
  /// What an answer is made of, or what it must not match (regex.h).
  enum class Reading : unsigned char { kSurely, kMaybe };

  /// kResourceExhausted if it would be too large.
  static Result<TextAutomaton> make(const Regex& regex, Match match, Reading reading);
  /// Texts of so many characters; `max` may be Regex::kUnbounded.
  static Result<TextAutomaton> lengths(std::size_t min, std::size_t max);
  /// All texts but these.
  static Result<TextAutomaton> all_but(const std::vector<std::string>& texts);
  /// Numbers with at most so many places behind the point, after a sign or none, that are multiples
  /// of `step` in units of the last place.
  static TextAutomaton multiples(std::size_t step, std::size_t places = 0);
  static TextAutomaton all();

  Result<TextAutomaton> intersect(const TextAutomaton& other) const;
  TextAutomaton complement() const;
  bool empty() const;
  std::size_t states() const { return states_.size(); }
  /// How much is to be written: of states, and of what their edges take.
  std::size_t size() const;
  /// Steps that it took to make it, those for what it was made of not counted.
  std::size_t work() const { return work_; }
  bool accepts(std::string_view text) const;
  /// An expression, with a rule for each state that needs one. Not for an empty automaton.
  std::string write(GrammarWriter& writer, Spelling spelling) const;

 private:
  struct Edge {
    CodeSet set;
    std::uint32_t target;
  };
  struct State {
    bool accepts = false;
    std::vector<Edge> edges;  ///< their sets do not overlap
  };
  friend class RegexStates;

  std::vector<bool> useful() const;

  std::vector<State> states_;
  std::size_t work_ = 0;
};

/// What an expression matches, written as the expression itself where that is exact.
class RegexText {
 public:
  static Result<RegexText> whole(const Regex& regex);
  static Result<RegexText> search(const Regex& regex);

  bool empty() const;
  /// As TextAutomaton's; little where the expression itself is written.
  std::size_t size() const;
  std::size_t work() const { return work_; }
  std::string write(GrammarWriter& writer, Spelling spelling) const;

 private:
  RegexText(std::variant<Regex, TextAutomaton> text, std::size_t work)
      : text_(std::move(text)), work_(work) {}
  std::variant<Regex, TextAutomaton> text_;
  std::size_t work_;
};

}  // namespace troupe
