#include "model/grammar/rule_plan.h"

#include <algorithm>
#include <span>

namespace troupe::grammar {
namespace {

/// Recursion through rules put in place ends here, on top of kNestingMax for each expression.
constexpr std::uint32_t kInlinedNestingMax = 256;
/// Small enough to be copied everywhere.
constexpr std::uint64_t kSmallStates = 48;
/// What rules whose end is open may cost, each and all its copies together.
constexpr std::uint64_t kOpenStates = 512;
constexpr std::uint64_t kCopiedStates = 16384;
constexpr std::uint64_t kStatesEnough = 1ull << 32;  // times kRepeatMax is no overflow

void rules_in(const ParsedGrammar& grammar, std::uint32_t expr, std::vector<std::uint32_t>& rules) {
  const Expr& e = grammar.exprs[expr];
  if (e.kind == ExprKind::kRule) rules.push_back(e.first);
  if (e.kind == ExprKind::kRepeat) rules_in(grammar, e.first, rules);
  if (e.kind == ExprKind::kSequence || e.kind == ExprKind::kChoice) {
    for (std::uint32_t i = 0; i < e.count; ++i)
      rules_in(grammar, grammar.children[e.first + i], rules);
  }
}

/// Tarjan's strongly connected components of the rules that are reached from the root; each
/// component after those that it uses.
class RuleOrder {
 public:
  explicit RuleOrder(const ParsedGrammar& grammar, std::vector<RuleShape>& shapes)
      : shapes_(shapes),
        uses_(grammar.rules.size()),
        index_(uses_.size(), 0),
        low_(uses_.size(), 0),
        open_(uses_.size(), false) {
    for (std::size_t rule = 0; rule < uses_.size(); ++rule)
      rules_in(grammar, grammar.rules[rule].expr, uses_[rule]);
    visit(grammar.root);
  }
  const std::vector<std::uint32_t>& order() const { return order_; }

 private:
  struct Frame {
    std::uint32_t rule;
    std::size_t next = 0;
  };

  void enter(std::uint32_t rule) {
    index_[rule] = low_[rule] = ++count_;
    open_[rule] = true;
    stack_.push_back(rule);
    frames_.push_back({rule});
  }

  void visit(std::uint32_t root) {
    enter(root);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      const std::uint32_t rule = frame.rule;
      if (frame.next < uses_[rule].size()) {
        const std::uint32_t used = uses_[rule][frame.next++];
        ++shapes_[used].uses;
        if (used == rule) shapes_[rule].recursive = true;
        if (index_[used] == 0) {
          enter(used);
        } else if (open_[used]) {
          low_[rule] = std::min(low_[rule], index_[used]);
        }
        continue;
      }
      frames_.pop_back();
      if (!frames_.empty())
        low_[frames_.back().rule] = std::min(low_[frames_.back().rule], low_[rule]);
      if (low_[rule] == index_[rule]) close(rule);
    }
  }

  void close(std::uint32_t rule) {
    const bool alone = stack_.back() == rule;
    for (bool more = true; more;) {
      const std::uint32_t member = stack_.back();
      stack_.pop_back();
      open_[member] = false;
      if (!alone) shapes_[member].recursive = true;
      order_.push_back(member);
      more = member != rule;
    }
  }

  std::vector<RuleShape>& shapes_;
  std::vector<std::vector<std::uint32_t>> uses_;
  std::vector<std::uint32_t> index_, low_;
  std::vector<bool> open_;
  std::vector<std::uint32_t> stack_, order_;
  std::vector<Frame> frames_;
  std::uint32_t count_ = 0;
};

bool worth_inlining(const RuleShape& rule) {
  if (rule.recursive || rule.nesting > kInlinedNestingMax) return false;
  if (rule.uses == 1) return true;
  if (rule.states <= kSmallStates && (rule.open || !rule.loops)) return true;
  return rule.open && rule.states <= kOpenStates && rule.states * rule.uses <= kCopiedStates;
}

RuleShape sequence_shape(const ParsedGrammar& grammar, const std::vector<RuleShape>& rules,
                         const Expr& e) {
  RuleShape shape;
  shape.nullable = true;
  for (std::uint32_t i = 0; i < e.count; ++i) {
    const RuleShape part = shape_of(grammar, rules, grammar.children[e.first + i]);
    shape.states = std::min(shape.states + part.states, kStatesEnough);
    shape.nesting = std::max(shape.nesting, part.nesting);
    shape.open = part.open || part.nullable;
    shape.nullable = shape.nullable && part.nullable;
    shape.loops = shape.loops || part.loops;
  }
  ++shape.nesting;
  shape.states = std::max<std::uint64_t>(shape.states, 1);  // what is free would be copied for ever
  return shape;
}

RuleShape choice_shape(const ParsedGrammar& grammar, const std::vector<RuleShape>& rules,
                       const Expr& e) {
  RuleShape shape;
  for (std::uint32_t i = 0; i < e.count; ++i) {
    const RuleShape part = shape_of(grammar, rules, grammar.children[e.first + i]);
    shape.states = std::min(shape.states + part.states, kStatesEnough);
    shape.nesting = std::max(shape.nesting, part.nesting);
    shape.open = shape.open || part.open;
    shape.nullable = shape.nullable || part.nullable;
    shape.loops = shape.loops || part.loops;
  }
  ++shape.nesting;
  ++shape.states;
  return shape;
}

RuleShape repeat_shape(const ParsedGrammar& grammar, const std::vector<RuleShape>& rules,
                       const Expr& e) {
  RuleShape shape = shape_of(grammar, rules, e.first);
  const std::uint64_t copies = e.max == kUnbounded ? std::uint64_t{e.min} + 1 : e.max;
  const bool counted = shape.states * copies > kUnrolledMax && copies > 1;
  shape.states = counted ? 2 : shape.states * copies + 2;
  shape.open = true;
  shape.nullable = shape.nullable || e.min == 0;
  shape.loops = true;
  ++shape.nesting;
  return shape;
}

}  // namespace

RuleShape shape_of(const ParsedGrammar& grammar, const std::vector<RuleShape>& rules,
                   std::uint32_t expr) {
  const Expr& e = grammar.exprs[expr];
  RuleShape shape;
  shape.nesting = 1;
  switch (e.kind) {
    case ExprKind::kLiteral:
      shape.states = std::max(e.count, 1u);
      shape.nullable = e.count == 0;
      return shape;
    case ExprKind::kClass: {
      // Above ASCII a range is about three sequences of bytes.
      shape.states = 1;
      for (std::uint32_t i = 0; i < e.count; ++i)
        shape.states += grammar.ranges[e.first + i].last >= 0x80 ? 6 : 0;
      return shape;
    }
    case ExprKind::kToken:
      shape.states = 1;
      return shape;
    case ExprKind::kRule: {
      if (!rules[e.first].inlined) {
        shape.states = 1;
        shape.nullable = rules[e.first].nullable;
        return shape;
      }
      shape = rules[e.first];
      ++shape.nesting;
      return shape;
    }
    case ExprKind::kSequence:
      return sequence_shape(grammar, rules, e);
    case ExprKind::kChoice:
      return choice_shape(grammar, rules, e);
    case ExprKind::kRepeat:
      return repeat_shape(grammar, rules, e);
  }
  return shape;
}

std::vector<RuleShape> plan_rules(const ParsedGrammar& grammar) {
  std::vector<RuleShape> rules(grammar.rules.size());
  const RuleOrder order(grammar, rules);
  for (const std::uint32_t rule : order.order()) {
    RuleShape shape = shape_of(grammar, rules, grammar.rules[rule].expr);
    shape.uses = rules[rule].uses;
    shape.recursive = rules[rule].recursive;
    shape.inlined = worth_inlining(shape);
    rules[rule] = shape;
  }
  return rules;
}

}  // namespace troupe::grammar
