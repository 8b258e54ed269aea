#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "model/grammar/text_automaton.h"

namespace troupe {

/// Turns an expression into an automaton: Thompson's construction, then sets of its states. An
/// anchor is an edge that takes no character: `^` only before the first one, `$` only into a copy
/// of the states from which no more are taken.
class RegexStates {
 public:
  RegexStates(TextAutomaton::Match match, TextAutomaton::Reading reading)
      : match_(match), reading_(reading) {}
  Result<TextAutomaton> run(const Regex& regex);

 private:
  struct Node {
    std::vector<std::uint32_t> free, at_start, at_end;  ///< targets of edges without a character
    const CodeSet* set = nullptr;                       ///< of the expression; then to `next`
    std::uint32_t next = 0;
  };
  /// Sorted; each is a node, twice, plus one if no more characters may be taken.
  using Items = std::vector<std::uint32_t>;

  std::uint32_t add_node();
  std::uint32_t add_set(std::uint32_t from, const CodeSet& set);
  std::uint32_t build(const Regex& regex, std::uint32_t from);
  std::uint32_t build_repeat(const Regex& regex, std::uint32_t from);
  Items closure(Items items, bool at_start);
  std::uint32_t state_of(const Items& items);
  void add_edges(std::uint32_t state);
  bool exhausted() const {
    return steps_ > TextAutomaton::kStepsMax || out_.states_.size() > TextAutomaton::kStatesMax;
  }

  TextAutomaton::Match match_;
  TextAutomaton::Reading reading_;
  std::vector<Node> nodes_;
  std::uint32_t last_ = 0;
  std::size_t steps_ = 0;
  TextAutomaton out_;
  std::map<Items, std::uint32_t> known_;
  std::vector<Items> items_of_;
};

}  // namespace troupe
