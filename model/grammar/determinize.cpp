#include "model/grammar/determinize.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/grammar/sequence_table.h"

namespace troupe::grammar {
namespace {

/// The subset construction of one callee may make this many states for each of the NFA's, and look
/// at this many of the NFA's edges; on top of an allowance for small ones. Prefix trees of choices
/// stay far below.
constexpr std::uint64_t kStatesPerState = 4;
constexpr std::uint64_t kStatesAllowed = 1024;
constexpr std::uint64_t kEdgesPerState = 64;
constexpr std::uint64_t kEdgesAllowed = 1u << 18;
/// All of them together may look at so many, some 200 ms, and at these for each state; after that
/// they are kept as they are.
constexpr std::uint64_t kEdgesOfAll = 1u << 22;
constexpr std::uint64_t kEdgesOfAllPerState = 16;

class Determinizer {
 public:
  explicit Determinizer(const Nfa& nfa)
      : nfa_(nfa), seen_(nfa.states(), 0), kept_(nfa.states(), 0), is_end_(nfa.states(), false) {
    for (const Nfa::Callee& callee : nfa.callees) is_end_[callee.end] = true;
  }

  Automaton build() {
    out_.states.push_back({0, 0, 0, 0, true});  // kDone
    for (std::uint32_t c = 0; c < nfa_.callees.size(); ++c) {
      const Nfa::Callee& callee = nfa_.callees[c];
      // They are numbered callee by callee.
      const std::uint32_t behind =
          c + 1 < nfa_.callees.size() ? nfa_.callees[c + 1].start : nfa_.states();
      Automaton::Callee made{0, callee.min, callee.max, callee.live, false};
      if (callee.live) {
        first_ = static_cast<std::uint32_t>(out_.states.size());
        const bool tried = edges_of_all_ <= kEdgesOfAll + kEdgesOfAllPerState * nfa_.states();
        if (!tried || !subsets_of(callee, behind - callee.start)) keep(callee);
        made.start = start_;
        made.open = callee.max > 1 || open_;
      }
      out_.callees.push_back(made);
    }
    begin_state(false);
    return std::move(out_);
  }

 private:
  /// What one label leads to, until the target's number is known.
  struct Target {
    std::uint32_t label = 0;
    std::uint32_t state = 0;  // of the NFA
    bool operator<(const Target& o) const {
      return std::pair(label, state) < std::pair(o.label, o.state);
    }
  };

  void begin_state(bool accepts) {
    out_.states.push_back(end());
    out_.states.back().accepts = accepts;
  }

  /// The states that `set` and empty edges lead to, those that matter: with an edge, or an end.
  std::vector<std::uint32_t> closed(std::vector<std::uint32_t> set) {
    ++stamp_;
    std::vector<std::uint32_t> result;
    for (const std::uint32_t state : set) seen_[state] = stamp_;
    while (!set.empty()) {
      const std::uint32_t state = set.back();
      set.pop_back();
      bool matters = is_end_[state];
      for (const NfaEdge& e : nfa_.edges_of(state)) {
        ++edges_seen_;
        if (e.label != NfaLabel::kEmpty) {
          matters = true;
        } else if (seen_[e.to] != stamp_) {
          seen_[e.to] = stamp_;
          set.push_back(e.to);
        }
      }
      if (matters) result.push_back(state);
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  /// Behind the state, as long as the only way on is an empty edge.
  std::uint32_t behind_empties(std::uint32_t state) {
    for (int steps = 0; steps < 64; ++steps) {
      const auto edges = nfa_.edges_of(state);
      if (edges.size() != 1 || edges[0].label != NfaLabel::kEmpty) break;
      state = edges[0].to;
    }
    return state;
  }

  /// The number of the state for what one label leads to.
  std::uint32_t number_of(std::vector<std::uint32_t> targets) {
    for (std::uint32_t& state : targets) state = behind_empties(state);
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    edges_seen_ += targets.size();
    const std::uint32_t known = targets_.intern(targets);
    if (known < numbers_.size()) return numbers_[known];
    const std::vector<std::uint32_t> set = closed(std::move(targets));
    const bool done = set.size() == 1 && is_end_[set[0]];
    numbers_.push_back(done ? Automaton::kDone : first_ + sets_.intern(set));
    return numbers_.back();
  }

  bool subsets_of(const Nfa::Callee& callee, std::uint64_t states) {
    const Automaton::State before = end();
    sets_ = SequenceTable();
    targets_ = SequenceTable();
    numbers_.clear();
    edges_seen_ = 0;
    open_ = false;
    start_ = number_of({callee.start});
    for (std::uint32_t i = 0; i < sets_.size(); ++i) {
      const auto set = sets_[i];
      if (out_.states.size() > 2 * kStatesMax || out_.byte_edges.size() > 8 * kStatesMax ||
          sets_.size() > kStatesAllowed + kStatesPerState * states ||
          edges_seen_ > kEdgesAllowed + kEdgesPerState * states) {
        restore(before);
        edges_of_all_ += edges_seen_;
        return false;
      }
      write_state({set.begin(), set.end()});
    }
    edges_of_all_ += edges_seen_;
    return true;
  }

  void write_state(const std::vector<std::uint32_t>& set) {
    bool accepts = false;
    std::vector<const NfaEdge*> bytes;
    std::vector<Target> calls, tokens;
    for (const std::uint32_t state : set) {
      accepts = accepts || is_end_[state];
      for (const NfaEdge& e : nfa_.edges_of(state)) {
        if (e.label == NfaLabel::kBytes) bytes.push_back(&e);
        if (e.label == NfaLabel::kCall) calls.push_back({e.value, e.to});
        if (e.label == NfaLabel::kToken) tokens.push_back({e.value, e.to});
      }
    }
    edges_seen_ += bytes.size();
    begin_state(accepts);
    open_ = open_ || accepts;  // kDone apart, what accepts here has edges
    write_bytes(bytes);
    for_each_label(calls, [&](std::uint32_t callee, std::uint32_t to) {
      out_.call_edges.push_back({callee, to});
    });
    for_each_label(tokens, [&](std::uint32_t token, std::uint32_t to) {
      out_.token_edges.push_back({static_cast<TokenId>(token), to});
    });
  }

  template <class Each>
  void for_each_label(std::vector<Target>& targets, const Each& each) {
    std::sort(targets.begin(), targets.end());
    for (std::size_t i = 0; i < targets.size();) {
      std::vector<std::uint32_t> to;
      const std::uint32_t label = targets[i].label;
      for (; i < targets.size() && targets[i].label == label; ++i) to.push_back(targets[i].state);
      each(label, number_of(std::move(to)));
    }
  }

  /// Cuts the bytes where an edge begins or ends; between two cuts all lead to the same.
  void write_bytes(const std::vector<const NfaEdge*>& edges) {
    if (edges.size() == 1) {
      const std::uint32_t to = number_of({edges[0]->to});
      return out_.byte_edges.push_back({edges[0]->lo, edges[0]->hi, to});
    }
    std::array<bool, 257> cut{};
    for (const NfaEdge* e : edges) cut[e->lo] = cut[e->hi + 1] = true;
    std::array<std::uint16_t, 257> part{};
    std::vector<std::pair<int, int>> parts;
    for (int b = 0; b < 256; ++b) {
      if (b == 0 || cut[b]) parts.emplace_back(b, b);
      parts.back().second = b;
      part[b] = static_cast<std::uint16_t>(parts.size() - 1);
    }
    std::vector<std::vector<std::uint32_t>> to(parts.size());
    for (const NfaEdge* e : edges) {
      for (int p = part[e->lo]; p <= part[e->hi]; ++p) {
        to[p].push_back(e->to);
        ++edges_seen_;
      }
    }
    const std::size_t first = out_.byte_edges.size();
    for (std::size_t p = 0; p < parts.size(); ++p) {
      if (to[p].empty()) continue;
      const Automaton::ByteEdge next{static_cast<std::uint8_t>(parts[p].first),
                                     static_cast<std::uint8_t>(parts[p].second),
                                     number_of(std::move(to[p]))};
      if (out_.byte_edges.size() > first && out_.byte_edges.back().to == next.to &&
          out_.byte_edges.back().hi + 1 == next.lo) {
        out_.byte_edges.back().hi = next.hi;
      } else {
        out_.byte_edges.push_back(next);
      }
    }
  }

  /// The callee as it is, with empty edges.
  void keep(const Nfa::Callee& callee) {
    open_ = true;
    std::vector<std::uint32_t> order = {callee.start};
    kept_[callee.start] = first_;
    start_ = first_;
    const auto number_to = [&](std::uint32_t state) {
      if (state == callee.end) return Automaton::kDone;
      if (kept_[state] == 0) {
        kept_[state] = first_ + static_cast<std::uint32_t>(order.size());
        order.push_back(state);
      }
      return kept_[state];
    };
    for (std::size_t i = 0; i < order.size(); ++i) {
      begin_state(false);
      for (const NfaEdge& e : nfa_.edges_of(order[i])) {
        const std::uint32_t to = number_to(e.to);
        if (e.label == NfaLabel::kEmpty) out_.empty_edges.push_back(to);
        if (e.label == NfaLabel::kBytes) out_.byte_edges.push_back({e.lo, e.hi, to});
        if (e.label == NfaLabel::kCall) out_.call_edges.push_back({e.value, to});
        if (e.label == NfaLabel::kToken)
          out_.token_edges.push_back({static_cast<TokenId>(e.value), to});
      }
    }
  }

  /// Where a state's edges would begin now.
  Automaton::State end() const {
    return {static_cast<std::uint32_t>(out_.byte_edges.size()),
            static_cast<std::uint32_t>(out_.call_edges.size()),
            static_cast<std::uint32_t>(out_.token_edges.size()),
            static_cast<std::uint32_t>(out_.empty_edges.size()), false};
  }
  void restore(const Automaton::State& before) {
    out_.states.resize(first_);
    out_.byte_edges.resize(before.bytes);
    out_.call_edges.resize(before.calls);
    out_.token_edges.resize(before.tokens);
    out_.empty_edges.resize(before.empties);
  }

  const Nfa& nfa_;
  Automaton out_;
  SequenceTable sets_;                  // of the callee's states
  SequenceTable targets_;               // before what empty edges add
  std::vector<std::uint32_t> numbers_;  // [targets]
  std::vector<std::uint32_t> seen_;     // [NFA's states]: the stamp of the walk
  std::vector<std::uint32_t> kept_;     // [NFA's states]: the number of what keep() keeps
  std::uint32_t stamp_ = 0;
  std::vector<bool> is_end_;
  std::uint32_t first_ = 0, start_ = 0;
  bool open_ = false;
  std::uint64_t edges_seen_ = 0;    // for this callee
  std::uint64_t edges_of_all_ = 0;  // for those before it
};

}  // namespace

Automaton determinize(const Nfa& nfa) { return Determinizer(nfa).build(); }

std::size_t Automaton::bytes() const {
  return states.size() * sizeof(State) + byte_edges.size() * sizeof(ByteEdge) +
         call_edges.size() * sizeof(CallEdge) + token_edges.size() * sizeof(TokenEdge) +
         empty_edges.size() * sizeof(std::uint32_t) + callees.size() * sizeof(Callee);
}

}  // namespace troupe::grammar
