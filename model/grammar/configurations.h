#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "model/grammar/automaton.h"
#include "model/grammar/sequence_table.h"
#include "model/grammar/stacks.h"

namespace troupe::grammar {

/// What an automaton may be in while one token is read, as the states of a deterministic automaton
/// that is made while it is used. A configuration is a set of items (stacks.h) and has a number;
/// the step to the next by a byte is looked up.
class Configurations {
 public:
  static constexpr std::uint32_t kDead = 0;  ///< nothing goes on from here

  /// `bytes_max`: the longest text that is read.
  Configurations(const Automaton& automaton, std::uint32_t bytes_max);

  Stacks& stacks() { return stacks_; }
  /// The item alone: what it comes to without a byte does not count.
  std::uint32_t alone(Item item);
  std::uint32_t closed(Item item);

  /// From here on each step and loop that is asked for is charged, the first time, as if nothing
  /// had been found before: a walk costs the same wherever and whenever it is made.
  void begin_charges() {
    ++turn_;
    charged_ = 0;
  }
  /// In units of Stacks::work().
  std::uint64_t charged() const { return charged_; }

  std::uint32_t next(std::uint32_t c, std::uint8_t byte) {
    const std::uint32_t part = all_[c].part_of[byte];
    if (part == 0) return kDead;
    Step& step = known_step(c, byte);
    if (step.turn != turn_) {
      step.turn = turn_;
      charged_ += step.cost;
    }
    return step.to;
  }
  /// Whether what lies under the stack may go on from here.
  bool popped(std::uint32_t c) const { return all_[c].popped; }
  /// Whether all texts of these kinds (token_trie_nodes.h) lead from it to itself.
  bool loops(std::uint32_t c, std::uint32_t kinds) {
    const Configuration& at = all_[c];
    const std::uint32_t charged = at.kinds_turn == turn_ ? at.kinds_charged : 0;
    const std::uint32_t leaving = kinds & at.leaving & charged;
    const std::uint32_t up_to_it = (leaving & (~leaving + 1)) * 2 - 1;  // all, if there is none
    return (kinds & up_to_it & ~charged) == 0 ? leaving == 0 : find_loops(c, kinds);
  }
  /// One that cannot be told from it within so many bytes, without counts that they cannot use up.
  std::uint32_t within(std::uint32_t c, std::uint32_t bytes) {
    return all_[c].least > bytes && all_[c].least != Stacks::kMany ? without_counts(c) : c;
  }
  std::size_t bytes() const { return bytes_ + stacks_.bytes() + keys_.bytes(); }

 private:
  static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;

  struct Step {
    std::uint32_t to = kUnknown;
    std::uint32_t cost = 0;
    std::uint32_t turn = 0;  ///< when it was charged last
  };
  struct Configuration {
    std::vector<Item> items;
    /// Bytes that no edge tells apart are one part; 0: no edge has them.
    std::array<std::uint16_t, 256> part_of{};
    std::vector<Step> next;  // [parts]
    std::uint32_t least = Stacks::kMany;
    std::uint32_t uncounted = kUnknown;
    std::uint32_t looping = 0, leaving = 0;  ///< kinds, once they are known
    std::vector<std::uint32_t> kinds_cost;   ///< [kinds], once one is asked for
    std::uint32_t kinds_turn = 0, kinds_charged = 0;
    bool popped = false;
  };

  std::uint32_t intern(const Items& items);
  void find_parts(Configuration& c) const;
  Step& known_step(std::uint32_t c, std::uint8_t byte) {
    Step& step = all_[c].next[all_[c].part_of[byte]];
    return step.to != kUnknown ? step : find_step(c, byte);
  }
  Step& find_step(std::uint32_t c, std::uint8_t byte);
  std::uint32_t look(std::uint32_t c, std::uint32_t byte);
  bool find_loops(std::uint32_t c, std::uint32_t kinds);
  void find_loop(std::uint32_t c, int kind);
  bool loops_over(std::uint32_t c, std::uint32_t kind);
  bool loops_above_ascii(std::uint32_t c);
  bool comes_back(std::uint32_t from, std::uint32_t lo, std::uint32_t hi, int more,
                  std::uint32_t to);
  std::uint32_t without_counts(std::uint32_t c);

  const Automaton* automaton_;
  const std::array<std::uint8_t, 128> ascii_kinds_;
  Stacks stacks_;
  SequenceTable keys_;
  std::vector<Configuration> all_;
  std::size_t bytes_ = 0;
  std::uint32_t turn_ = 0;
  std::uint64_t charged_ = 0;
  std::uint64_t looked_ = 0;                               // what find_loop() has cost so far
  std::pair<std::uint32_t, std::uint32_t> looked_last_{};  // a configuration, a part
};

}  // namespace troupe::grammar
