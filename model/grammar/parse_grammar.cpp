#include "model/grammar/parse_grammar.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "model/grammar/grammar_scanner.h"

namespace troupe::grammar {
namespace {

constexpr char32_t kCodePointMax = 0x10FFFF;

void append_utf8(std::string& out, char32_t c) {
  const auto byte = [&](char32_t value) { out += static_cast<char>(value); };
  const auto more = [&](int shift) { byte(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) return byte(0xC0 | c >> 6), more(0);
  if (c < 0x10000) return byte(0xE0 | c >> 12), more(6), more(0);
  byte(0xF0 | c >> 18), more(12), more(6), more(0);
}

/// Sorted and apart; the others if `negated`; in either case without surrogates.
std::vector<CodePoints> normalized(std::vector<CodePoints> ranges, bool negated) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePoints& a, const CodePoints& b) { return a.first < b.first; });
  std::vector<CodePoints> merged;
  for (const CodePoints& range : ranges) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  if (negated) {
    std::vector<CodePoints> others;
    char32_t next = 0;
    for (const CodePoints& range : merged) {
      if (range.first > next) others.push_back({next, range.first - 1});
      next = range.last + 1;
    }
    if (next <= kCodePointMax) others.push_back({next, kCodePointMax});
    merged = std::move(others);
  }
  std::vector<CodePoints> result;
  for (const CodePoints& range : merged) {
    if (range.first < 0xD800)
      result.push_back({range.first, std::min<char32_t>(range.last, 0xD7FF)});
    if (range.last > 0xDFFF)
      result.push_back({std::max<char32_t>(range.first, 0xE000), range.last});
  }
  return result;
}

/// Recursive descent; every level of recursion is a nesting of the text, and counted.
class GrammarParser {
 public:
  explicit GrammarParser(std::string_view text) : scan_(text) {}

  Result<ParsedGrammar> parse() {
    scan_.skip_space();
    while (!scan_.at_end() && !scan_.failed()) parse_rule();
    for (std::uint32_t rule = 0; rule < grammar_.rules.size(); ++rule) {
      if (!defined_[rule])
        scan_.fail(first_use_[rule],
                   "the rule " + grammar_.rules[rule].name + " is used, but defined nowhere");
    }
    const auto root = rule_of_.find("root");
    if (root == rule_of_.end()) scan_.fail(scan_.position(), "there must be a rule called root");
    if (scan_.failed()) return scan_.error();
    grammar_.root = root->second;
    return std::move(grammar_);
  }

 private:
  std::uint32_t rule_named(std::string_view name, std::size_t position) {
    const auto [entry, added] =
        rule_of_.try_emplace(std::string(name), static_cast<std::uint32_t>(grammar_.rules.size()));
    if (added) {
      grammar_.rules.push_back({std::string(name), 0});
      defined_.push_back(false);
      first_use_.push_back(position);
    }
    return entry->second;
  }

  void parse_rule() {
    const std::size_t begin = scan_.position();
    if (!scan_.definition_ahead())
      return scan_.fail(begin, "expected a rule: name ::= what it matches");
    const std::string_view name = scan_.name();
    const std::uint32_t rule = rule_named(name, begin);
    if (defined_[rule]) scan_.fail(begin, "the rule " + std::string(name) + " is defined twice");
    scan_.skip_space();
    scan_.take("::=");
    scan_.skip_space();
    const std::uint32_t expr = parse_choice(0);
    if (scan_.peek() == ')') scan_.fail(scan_.position(), "a ) that closes nothing");
    grammar_.rules[rule].expr = expr;
    defined_[rule] = true;
  }

  std::uint32_t parse_choice(std::size_t depth) {
    std::vector<std::uint32_t> alternatives = {parse_sequence(depth)};
    while (scan_.take("|")) {
      scan_.skip_space();
      alternatives.push_back(parse_sequence(depth));
    }
    return parent(ExprKind::kChoice, alternatives);
  }

  std::uint32_t parse_sequence(std::size_t depth) {
    std::vector<std::uint32_t> parts;
    while (!scan_.failed() && !scan_.at_end() && scan_.peek() != '|' && scan_.peek() != ')' &&
           !scan_.definition_ahead()) {
      parts.push_back(parse_repeated(depth));
      scan_.skip_space();
    }
    return parent(ExprKind::kSequence, parts);
  }

  /// An item and the operators behind it.
  std::uint32_t parse_repeated(std::size_t depth) {
    std::uint32_t expr = parse_item(depth);
    for (std::size_t operators = depth;; ++operators) {
      scan_.skip_space();
      const std::size_t begin = scan_.position();
      Expr repeat{ExprKind::kRepeat, expr, 1, 0, kUnbounded};
      if (scan_.take("?")) {
        repeat.max = 1;
      } else if (scan_.take("+")) {
        repeat.min = 1;
      } else if (scan_.peek() == '{') {
        parse_counts(repeat);
      } else if (!scan_.take("*")) {
        return expr;
      }
      if (operators >= kNestingMax) scan_.fail(begin, too_deep());
      if (scan_.failed()) return 0;
      expr = add(repeat);
    }
  }

  void parse_counts(Expr& repeat) {
    const std::size_t begin = scan_.position();
    scan_.take("{");
    scan_.skip_space();
    const auto min = scan_.number(kRepeatMax);
    auto max = min;
    scan_.skip_space();
    if (scan_.take(",")) {
      scan_.skip_space();
      max = kUnbounded;
      if (scan_.peek() != '}') max = scan_.number(kRepeatMax);
      scan_.skip_space();
    }
    if (!min || !max || !scan_.take("}") || *max < *min) {
      scan_.fail(begin, "expected {count}, {least,} or {least,most}, counts up to " +
                            std::to_string(kRepeatMax));
      return;
    }
    repeat.min = *min;
    repeat.max = *max;
  }

  std::uint32_t parse_item(std::size_t depth) {
    const std::size_t begin = scan_.position();
    if (scan_.take("\"")) return parse_literal(begin);
    if (scan_.take("<[")) return parse_token(begin);
    if (scan_.take("[")) return parse_class(begin);
    if (scan_.take(".")) return add_class({}, true);
    if (scan_.take("(")) {
      if (depth >= kNestingMax) {
        scan_.fail(begin, too_deep());
        return 0;
      }
      scan_.skip_space();
      const std::uint32_t expr = parse_choice(depth + 1);
      if (!scan_.take(")")) scan_.fail(begin, "a ( without its )");
      return expr;
    }
    const std::string_view name = scan_.name();
    if (name.empty()) {
      scan_.fail(begin, "expected a \"literal\", a [class], a rule's name, a ( or a <[token]>");
      return 0;
    }
    return add({ExprKind::kRule, rule_named(name, begin), 0, 0, 0});
  }

  std::uint32_t parse_literal(std::size_t begin) {
    Expr literal{ExprKind::kLiteral, static_cast<std::uint32_t>(grammar_.bytes.size()), 0, 0, 0};
    while (!scan_.take("\"")) {
      if (scan_.at_end()) scan_.fail(begin, "a literal without its closing \"");
      if (scan_.failed()) return 0;
      append_utf8(grammar_.bytes, scan_.character());
    }
    literal.count = static_cast<std::uint32_t>(grammar_.bytes.size()) - literal.first;
    return add(literal);
  }

  std::uint32_t parse_token(std::size_t begin) {
    const auto id = scan_.number(std::numeric_limits<std::int32_t>::max());
    if (!id || !scan_.take("]>")) scan_.fail(begin, "expected a token's id: <[1234]>");
    return add({ExprKind::kToken, id.value_or(0), 0, 0, 0});
  }

  std::uint32_t parse_class(std::size_t begin) {
    const bool negated = scan_.take("^");
    std::vector<CodePoints> ranges;
    while (!scan_.take("]")) {
      if (scan_.at_end()) scan_.fail(begin, "a class without its closing ]");
      if (scan_.failed()) return 0;
      CodePoints range;
      range.first = range.last = scan_.character();
      const std::size_t dash = scan_.position();
      if (scan_.peek() == '-' && !scan_.starts_with("-]")) {
        scan_.take("-");
        if (!scan_.at_end()) range.last = scan_.character();
        if (range.last < range.first) scan_.fail(dash, "a range whose end is before its start");
      }
      ranges.push_back(range);
    }
    if (ranges.empty() && !negated) scan_.fail(begin, "a class without characters");
    return add_class(std::move(ranges), negated);
  }

  std::uint32_t add_class(std::vector<CodePoints> ranges, bool negated) {
    ranges = normalized(std::move(ranges), negated);
    const auto first = static_cast<std::uint32_t>(grammar_.ranges.size());
    grammar_.ranges.insert(grammar_.ranges.end(), ranges.begin(), ranges.end());
    return add({ExprKind::kClass, first, static_cast<std::uint32_t>(ranges.size()), 0, 0});
  }

  std::uint32_t parent(ExprKind kind, const std::vector<std::uint32_t>& children) {
    if (children.size() == 1) return children[0];
    const auto first = static_cast<std::uint32_t>(grammar_.children.size());
    grammar_.children.insert(grammar_.children.end(), children.begin(), children.end());
    return add({kind, first, static_cast<std::uint32_t>(children.size()), 0, 0});
  }

  std::uint32_t add(const Expr& expr) {
    grammar_.exprs.push_back(expr);
    return static_cast<std::uint32_t>(grammar_.exprs.size() - 1);
  }

  static std::string too_deep() {
    return "groups and operators may be nested " + std::to_string(kNestingMax) +
           " deep; give the inner ones rules of their own";
  }

  GrammarScanner scan_;
  ParsedGrammar grammar_;
  std::unordered_map<std::string, std::uint32_t> rule_of_;
  std::vector<bool> defined_;
  std::vector<std::size_t> first_use_;
};

}  // namespace

Result<ParsedGrammar> parse_grammar(std::string_view text) { return GrammarParser(text).parse(); }

}  // namespace troupe::grammar
