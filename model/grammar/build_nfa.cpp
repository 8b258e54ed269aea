#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "model/grammar/nfa.h"
#include "model/grammar/rule_plan.h"
#include "model/grammar/utf8_edges.h"

namespace troupe::grammar {
namespace {

/// Thompson's construction: every function takes the state that its expression begins in, and gives
/// back the one that it ends in.
class NfaBuilder {
 public:
  explicit NfaBuilder(const ParsedGrammar& grammar)
      : grammar_(grammar), rules_(plan_rules(grammar)), callee_of_(grammar.rules.size(), kNone) {}

  Result<Nfa> build() {
    callee_of_rule(grammar_.root);
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      const std::uint32_t start = state();
      const std::uint32_t end = state();
      nfa_.callees[i].start = start;
      nfa_.callees[i].end = end;
      empty(expression(bodies_[i], start), end);
    }
    if (too_large()) {
      return resource_exhausted("the grammar's automaton has more than " +
                                std::to_string(kStatesMax) +
                                " states; make it smaller, or share parts as rules");
    }
    sort_edges();
    return std::move(nfa_);
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  bool too_large() const { return states_ > kStatesMax || nfa_.edges.size() > 4 * kStatesMax; }
  std::uint32_t state() { return states_++; }
  void edge(const NfaEdge& e) { nfa_.edges.push_back(e); }
  void empty(std::uint32_t from, std::uint32_t to) { edge({from, to, NfaLabel::kEmpty, 0, 0, 0}); }
  void bytes(std::uint32_t from, std::uint32_t to, std::uint8_t lo, std::uint8_t hi) {
    edge({from, to, NfaLabel::kBytes, lo, hi, 0});
  }

  std::uint32_t add_callee(std::uint32_t body, std::uint32_t min, std::uint32_t max) {
    bodies_.push_back(body);
    nfa_.callees.push_back({0, 0, min, max, false});
    return static_cast<std::uint32_t>(bodies_.size() - 1);
  }

  std::uint32_t callee_of_rule(std::uint32_t rule) {
    if (callee_of_[rule] == kNone) callee_of_[rule] = add_callee(grammar_.rules[rule].expr, 1, 1);
    return callee_of_[rule];
  }

  std::uint32_t call(std::uint32_t from, std::uint32_t callee) {
    const std::uint32_t to = state();
    edge({from, to, NfaLabel::kCall, 0, 0, callee});
    return to;
  }

  std::uint32_t expression(std::uint32_t expr, std::uint32_t from) {
    if (too_large()) return from;
    const Expr& e = grammar_.exprs[expr];
    switch (e.kind) {
      case ExprKind::kLiteral:
        return literal(e, from);
      case ExprKind::kClass:
        return character_class(e, from);
      case ExprKind::kToken: {
        const std::uint32_t to = state();
        edge({from, to, NfaLabel::kToken, 0, 0, e.first});
        return to;
      }
      case ExprKind::kRule:
        if (rules_[e.first].inlined) return expression(grammar_.rules[e.first].expr, from);
        return call(from, callee_of_rule(e.first));
      case ExprKind::kSequence:
        for (std::uint32_t i = 0; i < e.count; ++i)
          from = expression(grammar_.children[e.first + i], from);
        return from;
      case ExprKind::kChoice:
        return choice(e, from);
      case ExprKind::kRepeat:
        return repeat(e, from);
    }
    return from;
  }

  std::uint32_t literal(const Expr& e, std::uint32_t from) {
    for (std::uint32_t i = 0; i < e.count && !too_large(); ++i) {
      const auto byte = static_cast<std::uint8_t>(grammar_.bytes[e.first + i]);
      const std::uint32_t to = state();
      bytes(from, to, byte, byte);
      from = to;
    }
    return from;
  }

  std::uint32_t choice(const Expr& e, std::uint32_t from) {
    const std::uint32_t to = state();
    for (std::uint32_t i = 0; i < e.count; ++i)
      empty(expression(grammar_.children[e.first + i], from), to);
    return to;
  }

  std::uint32_t character_class(const Expr& e, std::uint32_t from) {
    const std::uint32_t to = state();
    // Whole rows of continuation bytes are the same behind every first byte.
    std::array<std::uint32_t, 4> tails = {to, kNone, kNone, kNone};
    const auto tail = [&](int length) {
      for (int i = 1; i <= length; ++i) {
        if (tails[i] != kNone) continue;
        tails[i] = state();
        bytes(tails[i], tails[i - 1], 0x80, 0xBF);
      }
      return tails[length];
    };
    for_each_utf8({grammar_.ranges.data() + e.first, e.count}, [&](const ByteRanges& run) {
      if (too_large()) return;
      int free = 0;  // how many bytes at the end are any
      while (free + 1 < run.count && run.ranges[run.count - 1 - free].lo == 0x80 &&
             run.ranges[run.count - 1 - free].hi == 0xBF)
        ++free;
      std::uint32_t at = from;
      for (int i = 0; i + free < run.count; ++i) {
        const std::uint32_t next = i + free + 1 == run.count ? tail(free) : state();
        bytes(at, next, run.ranges[i].lo, run.ranges[i].hi);
        at = next;
      }
    });
    return to;
  }

  std::uint32_t repeat(const Expr& e, std::uint32_t from) {
    const bool unbounded = e.max == kUnbounded;
    const std::uint64_t copies = unbounded ? std::uint64_t{e.min} + 1 : e.max;
    if (copies > 1 && copies * shape_of(grammar_, rules_, e.first).states > kUnrolledMax)
      return call(from, add_callee(e.first, e.min, e.max));
    for (std::uint32_t i = 0; i < e.min; ++i) from = expression(e.first, from);
    if (unbounded) return star(e.first, from);
    const std::uint32_t end = state();
    for (std::uint32_t i = e.min; i < e.max; ++i) {
      empty(from, end);
      from = expression(e.first, from);
    }
    empty(from, end);
    return end;
  }

  std::uint32_t star(std::uint32_t expr, std::uint32_t from) {
    const std::uint32_t loop = state();
    const std::uint32_t end = state();
    empty(from, loop);
    empty(loop, end);
    empty(expression(expr, loop), loop);
    return end;
  }

  void sort_edges() {
    nfa_.offsets.assign(states_ + 1, 0);
    for (const NfaEdge& e : nfa_.edges) ++nfa_.offsets[e.from + 1];
    for (std::uint32_t i = 0; i < states_; ++i) nfa_.offsets[i + 1] += nfa_.offsets[i];
    std::vector<std::uint32_t> next(nfa_.offsets.begin(), nfa_.offsets.end() - 1);
    std::vector<NfaEdge> sorted(nfa_.edges.size());
    for (const NfaEdge& e : nfa_.edges) sorted[next[e.from]++] = e;
    nfa_.edges = std::move(sorted);
  }

  const ParsedGrammar& grammar_;
  std::vector<RuleShape> rules_;
  std::vector<std::uint32_t> callee_of_;
  std::vector<std::uint32_t> bodies_;  // of the callees
  Nfa nfa_;
  std::uint32_t states_ = 0;
};

}  // namespace

Result<Nfa> build_nfa(const ParsedGrammar& grammar) {
  auto nfa = NfaBuilder(grammar).build();
  if (!nfa.ok()) return nfa;
  trim_nfa(*nfa);
  if (!nfa->callees[0].live)
    return invalid_argument(
        "grammar: nothing at all matches root; every way through it lacks an end");
  return nfa;
}

}  // namespace troupe::grammar
