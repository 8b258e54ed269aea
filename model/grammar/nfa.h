#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/grammar/parse_grammar.h"
#include "runtime/result.h"

namespace troupe::grammar {

/// More states are refused: a few hundred bytes each until the automaton is made.
inline constexpr std::size_t kStatesMax = 2u << 20;

enum class NfaLabel : std::uint8_t { kEmpty, kBytes, kCall, kToken };

struct NfaEdge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  NfaLabel label = NfaLabel::kEmpty;
  std::uint8_t lo = 0, hi = 0;  ///< kBytes
  std::uint32_t value = 0;      ///< the callee, the token
};

/// The callees (automaton.h) as built from the tree, before subsets are made of their states.
struct Nfa {
  struct Callee {
    std::uint32_t start = 0;
    std::uint32_t end = 0;  ///< no edge leaves it
    std::uint32_t min = 1;
    std::uint32_t max = 1;
    bool live = false;
  };
  std::vector<NfaEdge> edges;          // by `from`
  std::vector<std::uint32_t> offsets;  // [states + 1]
  std::vector<Callee> callees;         // the first is the root

  std::span<const NfaEdge> edges_of(std::uint32_t state) const {
    return {edges.data() + offsets[state], offsets[state + 1] - offsets[state]};
  }
  std::uint32_t states() const { return static_cast<std::uint32_t>(offsets.size() - 1); }
};

/// Puts small rules where they are used, makes callees of the others and of long repetitions, and
/// leaves only edges from which an end can be reached. kInvalidArgument if nothing matches the
/// root; kResourceExhausted above kStatesMax.
Result<Nfa> build_nfa(const ParsedGrammar& grammar);

/// Leaves only edges on a way to an end; says which callees are live and which may match nothing.
void trim_nfa(Nfa& nfa);

}  // namespace troupe::grammar
