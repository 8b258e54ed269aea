#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace troupe::grammar {

/// Groups, and operators behind operators, may be nested this deep: whoever walks an expression by
/// recursion has a bound.
inline constexpr std::size_t kNestingMax = 128;
/// The most that a repetition may count to; without an upper bound it has kUnbounded.
inline constexpr std::uint32_t kRepeatMax = 1'000'000'000;
inline constexpr std::uint32_t kUnbounded = 0xFFFFFFFF;

/// Unicode code points, both ends included.
struct CodePoints {
  char32_t first = 0;
  char32_t last = 0;
};

enum class ExprKind : std::uint8_t {
  kLiteral,   ///< `count` bytes of ParsedGrammar::bytes from `first` on
  kClass,     ///< one character of `count` ranges from `first` on: sorted, apart, no surrogates
  kToken,     ///< the token `first`
  kRule,      ///< the rule `first`
  kSequence,  ///< `count` children from `first` on, maybe none
  kChoice,    ///< one of `count` children
  kRepeat,    ///< the child at `first`, `min` to `max` times
};

struct Expr {
  ExprKind kind = ExprKind::kSequence;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t min = 0;
  std::uint32_t max = 0;
};

/// A grammar's text as a tree. Children are indices of `exprs`.
struct ParsedGrammar {
  struct Rule {
    std::string name;
    std::uint32_t expr = 0;
  };
  std::vector<Rule> rules;
  std::uint32_t root = 0;
  std::vector<Expr> exprs;
  std::vector<std::uint32_t> children;
  std::vector<CodePoints> ranges;
  std::string bytes;
};

/// Errors: kInvalidArgument, with line and column (from 1, in bytes).
Result<ParsedGrammar> parse_grammar(std::string_view text);

}  // namespace troupe::grammar
