#include <utility>

#include "model/grammar/nfa.h"

namespace troupe::grammar {
namespace {

constexpr std::uint32_t kNoCallee = 0xFFFFFFFF;

/// From which states an end of their callee is reached: backwards from the ends, each edge once.
class EndSearch {
 public:
  /// With `consuming` over all edges, else over those that match nothing.
  EndSearch(const Nfa& nfa, bool consuming)
      : nfa_(nfa),
        consuming_(consuming),
        good_(nfa.states(), false),
        passable_(nfa.callees.size(), false),
        callee_of_(nfa.states(), kNoCallee),
        into_(nfa.states()),
        calls_(nfa.callees.size()) {
    for (std::uint32_t i = 0; i < nfa.edges.size(); ++i) {
      into_.count(nfa.edges[i].to);
      if (nfa.edges[i].label == NfaLabel::kCall) calls_.count(nfa.edges[i].value);
    }
    into_.lay_out();
    calls_.lay_out();
    for (std::uint32_t i = 0; i < nfa.edges.size(); ++i) {
      into_.put(nfa.edges[i].to, i);
      if (nfa.edges[i].label == NfaLabel::kCall) calls_.put(nfa.edges[i].value, i);
    }
    for (std::uint32_t c = 0; c < nfa.callees.size(); ++c) {
      callee_of_[nfa.callees[c].start] = c;
      passable_[c] = nfa.callees[c].min == 0;
    }
    for (const Nfa::Callee& callee : nfa.callees) reach(callee.end);
    while (!work_.empty()) {
      const std::uint32_t state = work_.back();
      work_.pop_back();
      visit(state);
    }
  }

  bool good(std::uint32_t state) const { return good_[state]; }
  /// Whether a call can return.
  bool passable(std::uint32_t callee) const { return passable_[callee]; }

 private:
  /// Edges by a number of theirs.
  struct Index {
    explicit Index(std::size_t keys) : begins(keys + 1, 0) {}
    void count(std::uint32_t key) { ++begins[key + 1]; }
    void lay_out() {
      for (std::size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
      next.assign(begins.begin(), begins.end() - 1);
      edges.resize(begins.back());
    }
    void put(std::uint32_t key, std::uint32_t edge) { edges[next[key]++] = edge; }
    std::vector<std::uint32_t> begins, next, edges;
  };

  void reach(std::uint32_t state) {
    if (good_[state]) return;
    good_[state] = true;
    work_.push_back(state);
  }

  void visit(std::uint32_t state) {
    for (std::uint32_t i = into_.begins[state]; i < into_.begins[state + 1]; ++i) {
      const NfaEdge& e = nfa_.edges[into_.edges[i]];
      const bool passes = e.label == NfaLabel::kEmpty ||
                          (e.label == NfaLabel::kCall ? passable_[e.value] : consuming_);
      if (passes) reach(e.from);
    }
    const std::uint32_t callee = callee_of_[state];
    if (callee == kNoCallee || passable_[callee]) return;
    passable_[callee] = true;
    for (std::uint32_t i = calls_.begins[callee]; i < calls_.begins[callee + 1]; ++i) {
      const NfaEdge& e = nfa_.edges[calls_.edges[i]];
      if (good_[e.to]) reach(e.from);
    }
  }

  const Nfa& nfa_;
  bool consuming_;
  std::vector<bool> good_, passable_;
  std::vector<std::uint32_t> callee_of_;
  Index into_, calls_;
  std::vector<std::uint32_t> work_;
};

}  // namespace

void trim_nfa(Nfa& nfa) {
  {
    const EndSearch nothing(nfa, false);
    for (std::uint32_t c = 0; c < nfa.callees.size(); ++c) {
      if (nothing.passable(c)) nfa.callees[c].min = 0;
    }
  }
  const EndSearch any(nfa, true);
  for (Nfa::Callee& callee : nfa.callees) callee.live = any.good(callee.start);
  std::vector<NfaEdge> kept;
  kept.reserve(nfa.edges.size());
  std::vector<std::uint32_t> offsets = {0};
  for (std::uint32_t state = 0; state < nfa.states(); ++state) {
    for (NfaEdge e : nfa.edges_of(state)) {
      if (!any.good(e.to)) continue;
      if (e.label == NfaLabel::kCall) {
        if (!any.passable(e.value)) continue;
        // A call that can only be skipped.
        if (!nfa.callees[e.value].live) e.label = NfaLabel::kEmpty;
      }
      kept.push_back(e);
    }
    offsets.push_back(static_cast<std::uint32_t>(kept.size()));
  }
  nfa.edges = std::move(kept);
  nfa.offsets = std::move(offsets);
}

}  // namespace troupe::grammar
