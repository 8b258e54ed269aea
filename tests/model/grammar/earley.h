#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "model/grammar/parse_grammar.h"
#include "runtime/ids.h"

namespace troupe::grammar {

/// A slow recogniser to compare with: Earley's, as in the textbook, over the tree that a grammar's
/// text parses to. It knows nothing of automata, stacks or tries.
class Earley {
 public:
  explicit Earley(const ParsedGrammar& grammar) : grammar_(grammar) {
    of_rule_.resize(grammar.rules.size());
    for (auto& symbol : of_rule_) symbol = new_symbol();
    for (std::size_t rule = 0; rule < of_rule_.size(); ++rule)
      add(of_rule_[rule], {symbol_of(grammar.rules[rule].expr)});
    drop_unproductive();
    chart_.emplace_back();
    if (productive()) {
      predict(0, of_rule_[grammar.root]);
      complete_set(0);
    }
  }

  /// Whether the root matches anything.
  bool productive() const { return productive_[of_rule_[grammar_.root]]; }

  /// Whether some sentence begins with what was accepted and this token.
  bool viable(TokenId id, std::string_view text) {
    const std::size_t size = chart_.size();
    scan(id, text);
    const bool result = !chart_.back().items.empty();
    chart_.resize(size);
    return result;
  }
  void accept(TokenId id, std::string_view text) { scan(id, text); }

  /// How much there is to do for the next token.
  std::size_t items() const { return chart_.back().items.size(); }

  /// Whether what was accepted is a sentence.
  bool complete() const {
    for (const State& item : chart_.back().items) {
      if (item.origin == 0 && item.partial.empty() &&
          productions_[item.production].symbol == of_rule_[grammar_.root] &&
          item.dot == productions_[item.production].body.size())
        return true;
    }
    return false;
  }

 private:
  /// Symbols below kLeaf are rules of the grammar in Backus-Naur form; others are leaves.
  static constexpr std::uint32_t kLeaf = 1u << 30;
  struct Production {
    std::uint32_t symbol = 0;
    std::vector<std::uint32_t> body;
  };
  struct State {
    std::size_t production = 0;
    std::size_t dot = 0;
    std::size_t origin = 0;
    std::string partial;  ///< bytes of the leaf behind the dot that were read
    bool operator<(const State& o) const {
      return std::tie(production, dot, origin, partial) <
             std::tie(o.production, o.dot, o.origin, o.partial);
    }
  };
  struct Set {
    std::vector<State> items;
    std::set<State> known;
    std::set<std::uint32_t> matched_nothing;  ///< symbols that began and ended here

    void insert(State item) {
      if (known.insert(item).second) items.push_back(std::move(item));
    }
  };

  std::uint32_t new_symbol() {
    by_symbol_.emplace_back();
    return static_cast<std::uint32_t>(by_symbol_.size() - 1);
  }
  void add(std::uint32_t symbol, std::vector<std::uint32_t> body) {
    by_symbol_[symbol].push_back(productions_.size());
    productions_.push_back({symbol, std::move(body)});
  }

  std::uint32_t symbol_of(std::uint32_t expr) {
    const Expr& e = grammar_.exprs[expr];
    if (e.kind == ExprKind::kRule) return of_rule_[e.first];
    if (e.kind == ExprKind::kLiteral || e.kind == ExprKind::kClass || e.kind == ExprKind::kToken)
      return kLeaf + expr;
    const std::uint32_t symbol = new_symbol();
    if (e.kind == ExprKind::kRepeat) {
      const std::uint32_t inner = symbol_of(e.first);
      std::vector<std::uint32_t> body(e.min, inner);
      body.push_back(more_of(e, inner));
      add(symbol, std::move(body));
      return symbol;
    }
    std::vector<std::uint32_t> children;
    for (std::uint32_t i = 0; i < e.count; ++i)
      children.push_back(symbol_of(grammar_.children[e.first + i]));
    if (e.kind == ExprKind::kSequence) {
      add(symbol, children);
    } else {
      for (const std::uint32_t child : children) add(symbol, {child});
    }
    return symbol;
  }

  /// What may follow the least number of repetitions.
  std::uint32_t more_of(const Expr& e, std::uint32_t inner) {
    std::uint32_t last = new_symbol();
    add(last, {});
    if (e.max == kUnbounded) {
      add(last, {inner, last});
      return last;
    }
    for (std::uint32_t i = e.min; i < e.max; ++i) {
      const std::uint32_t next = new_symbol();
      add(next, {});
      add(next, {inner, last});
      last = next;
    }
    return last;
  }

  bool ends(std::uint32_t symbol) const {
    if (symbol < kLeaf) return productive_[symbol];
    const Expr& e = grammar_.exprs[symbol - kLeaf];
    return e.kind != ExprKind::kClass || e.count > 0;
  }

  void drop_unproductive() {
    productive_.assign(by_symbol_.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (const Production& p : productions_) {
        bool all = true;
        for (const std::uint32_t symbol : p.body) all = all && ends(symbol);
        if (all && !productive_[p.symbol]) changed = productive_[p.symbol] = true;
      }
    }
    for (auto& list : by_symbol_) {
      std::erase_if(list, [&](std::size_t p) {
        for (const std::uint32_t symbol : productions_[p].body) {
          if (!ends(symbol)) return true;
        }
        return false;
      });
    }
  }

  void predict(std::size_t at, std::uint32_t symbol) {
    for (const std::size_t p : by_symbol_[symbol]) chart_[at].insert({p, 0, at, ""});
  }

  /// Predicts and completes until nothing is new.
  void complete_set(std::size_t at) {
    for (std::size_t i = 0; i < chart_[at].items.size(); ++i) {
      const State item = chart_[at].items[i];
      const Production& p = productions_[item.production];
      if (item.dot < p.body.size()) {
        const std::uint32_t symbol = p.body[item.dot];
        const State behind{item.production, item.dot + 1, item.origin, ""};
        if (symbol < kLeaf) {
          predict(at, symbol);
          if (chart_[at].matched_nothing.count(symbol) != 0) chart_[at].insert(behind);
        } else if (grammar_.exprs[symbol - kLeaf].kind == ExprKind::kLiteral &&
                   grammar_.exprs[symbol - kLeaf].count == 0) {
          chart_[at].insert(behind);
        }
        continue;
      }
      if (item.origin == at) chart_[at].matched_nothing.insert(p.symbol);
      for (std::size_t k = 0; k < chart_[item.origin].items.size(); ++k) {
        const State parent = chart_[item.origin].items[k];
        const Production& q = productions_[parent.production];
        if (parent.dot < q.body.size() && q.body[parent.dot] == p.symbol)
          chart_[at].insert({parent.production, parent.dot + 1, parent.origin, ""});
      }
    }
  }

  /// Reads a token: as its bytes, and as itself.
  void scan(TokenId id, std::string_view text) {
    const std::size_t from = chart_.size() - 1;
    for (const char byte : text) {
      chart_.emplace_back();
      scan_byte(byte);
      if (&byte != &text.back()) complete_set(chart_.size() - 1);
    }
    if (text.empty()) chart_.emplace_back();
    for (const State& item : chart_[from].items) {
      const Production& p = productions_[item.production];
      if (item.dot == p.body.size() || p.body[item.dot] < kLeaf || !item.partial.empty()) continue;
      const Expr& e = grammar_.exprs[p.body[item.dot] - kLeaf];
      if (e.kind == ExprKind::kToken && e.first == static_cast<std::uint32_t>(id))
        chart_.back().insert({item.production, item.dot + 1, item.origin, ""});
    }
    complete_set(chart_.size() - 1);
  }

  void scan_byte(char byte) {
    Set& to = chart_.back();
    for (const State& item : chart_[chart_.size() - 2].items) {
      const Production& p = productions_[item.production];
      if (item.dot == p.body.size() || p.body[item.dot] < kLeaf) continue;
      const Expr& e = grammar_.exprs[p.body[item.dot] - kLeaf];
      const std::string read = item.partial + byte;
      bool whole = false;
      if (e.kind == ExprKind::kLiteral) {
        const auto all = std::string_view(grammar_.bytes).substr(e.first, e.count);
        if (!all.starts_with(read)) continue;
        whole = all.size() == read.size();
      } else if (e.kind != ExprKind::kClass || !in_class(e, read, whole)) {
        continue;
      }
      if (whole) {
        to.insert({item.production, item.dot + 1, item.origin, ""});
      } else {
        to.insert({item.production, item.dot, item.origin, read});
      }
    }
  }

  /// Whether a character of the class begins with these bytes: those that do are one block.
  bool in_class(const Expr& e, std::string_view read, bool& whole) const {
    const auto lead = static_cast<std::uint8_t>(read[0]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xC0 ? 0
                               : lead < 0xE0 ? 2
                               : lead < 0xF0 ? 3
                                             : 4;
    if (length == 0 || lead >= 0xF8) return false;
    constexpr std::array<std::uint32_t, 5> kMask = {0, 0x7F, 0x1F, 0x0F, 0x07};
    constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
    std::uint32_t first = lead & kMask[length];
    for (std::size_t i = 1; i < read.size(); ++i) {
      if ((static_cast<std::uint8_t>(read[i]) & 0xC0) != 0x80) return false;
      first = first << 6 | (static_cast<std::uint8_t>(read[i]) & 0x3F);
    }
    std::uint32_t last = first;
    for (std::size_t i = read.size(); i < length; ++i) {
      first = first << 6;
      last = last << 6 | 0x3F;
    }
    whole = read.size() == length;
    if (first < kLeast[length]) first = kLeast[length];
    for (std::uint32_t i = 0; i < e.count && first <= last; ++i) {
      const CodePoints& range = grammar_.ranges[e.first + i];
      if (range.first <= last && first <= range.last) return true;
    }
    return false;
  }

  const ParsedGrammar& grammar_;
  std::vector<std::uint32_t> of_rule_;
  std::vector<std::vector<std::size_t>> by_symbol_;
  std::vector<Production> productions_;
  std::vector<bool> productive_;
  std::vector<Set> chart_;
};

}  // namespace troupe::grammar
