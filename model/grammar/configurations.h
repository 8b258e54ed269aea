#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

  std::uint32_t next(std::uint32_t c, std::uint8_t byte) {
    Configuration& from = all_[c];
    const std::uint32_t part = from.part_of[byte];
    if (part == 0) return kDead;
    const std::uint32_t to = from.next[part];
    return to != kUnknown ? to : find_next(c, byte);
  }
  /// Whether what lies under the stack may go on from here.
  bool popped(std::uint32_t c) const { return all_[c].popped; }
  /// In how many ways what was read can be read.
  std::size_t ways(std::uint32_t c) const { return all_[c].items.size(); }
  /// Whether all texts of these kinds (token_trie_nodes.h) lead from it to itself.
  bool loops(std::uint32_t c, std::uint32_t kinds) {
    const Configuration& at = all_[c];
    if ((kinds & at.leaving) != 0) return false;
    return (kinds & ~at.looping) == 0 || find_loops(c, kinds & ~at.looping);
  }
  /// One that cannot be told from it within so many bytes, without counts that they cannot use up.
  std::uint32_t within(std::uint32_t c, std::uint32_t bytes) {
    return all_[c].least > bytes && all_[c].least != Stacks::kMany ? without_counts(c) : c;
  }
  std::size_t bytes() const { return bytes_ + stacks_.bytes() + keys_.bytes(); }

 private:
  static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;

  struct Configuration {
    std::vector<Item> items;
    /// Bytes that no edge tells apart are one part; 0: no edge has them.
    std::array<std::uint16_t, 256> part_of{};
    std::vector<std::uint32_t> next;  // [parts]
    std::uint32_t least = Stacks::kMany;
    std::uint32_t uncounted = kUnknown;
    std::uint32_t looping = 0, leaving = 0;  ///< kinds, once they are known
    bool popped = false;
  };

  std::uint32_t intern(const Items& items);
  void find_parts(Configuration& c) const;
  std::uint32_t find_next(std::uint32_t c, std::uint8_t byte);
  bool find_loops(std::uint32_t c, std::uint32_t kinds);
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
};

}  // namespace troupe::grammar
