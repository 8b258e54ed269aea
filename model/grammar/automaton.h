#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/ids.h"

namespace troupe::grammar {

/// A grammar as a pushdown automaton over bytes. What may repeat or recur is a *callee*: a part
/// with states of its own, entered from a call edge, which says where it returns to.
struct Automaton {
  /// From one byte to another, both included.
  struct ByteEdge {
    std::uint8_t lo = 0;
    std::uint8_t hi = 0;
    std::uint32_t to = 0;
  };
  struct CallEdge {
    std::uint32_t callee = 0;
    std::uint32_t to = 0;
  };
  struct TokenEdge {
    TokenId id = 0;
    std::uint32_t to = 0;
  };
  /// Where a state's edges begin; they end where the next state's begin.
  struct State {
    std::uint32_t bytes = 0;
    std::uint32_t calls = 0;
    std::uint32_t tokens = 0;
    std::uint32_t empties = 0;
    bool accepts = false;  ///< its callee may end here
  };
  /// Runs from `start` to a state that accepts, `min` to `max` times before it returns. No run is
  /// empty: one that could be makes `min` 0.
  struct Callee {
    std::uint32_t start = 0;
    std::uint32_t min = 1;
    std::uint32_t max = 1;
    bool live = false;  ///< a run can end at all
    bool open = false;  ///< what ends a run could also go on with it
  };

  std::vector<State> states;  // and one more behind the last
  std::vector<ByteEdge> byte_edges;
  std::vector<CallEdge> call_edges;
  std::vector<TokenEdge> token_edges;
  std::vector<std::uint32_t> empty_edges;  // left only where the subset construction gave up
  std::vector<Callee> callees;             // the first is the root

  /// Accepts and has no edge; every state like it is this one.
  static constexpr std::uint32_t kDone = 0;

  std::span<const ByteEdge> bytes_of(std::uint32_t s) const {
    return {byte_edges.data() + states[s].bytes, states[s + 1].bytes - states[s].bytes};
  }
  std::span<const CallEdge> calls_of(std::uint32_t s) const {
    return {call_edges.data() + states[s].calls, states[s + 1].calls - states[s].calls};
  }
  std::span<const TokenEdge> tokens_of(std::uint32_t s) const {
    return {token_edges.data() + states[s].tokens, states[s + 1].tokens - states[s].tokens};
  }
  std::span<const std::uint32_t> empties_of(std::uint32_t s) const {
    return {empty_edges.data() + states[s].empties, states[s + 1].empties - states[s].empties};
  }
  std::size_t bytes() const;
};

}  // namespace troupe::grammar
