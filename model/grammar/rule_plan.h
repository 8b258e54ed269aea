#pragma once

#include <cstdint>
#include <vector>

#include "model/grammar/parse_grammar.h"

namespace troupe::grammar {

/// A repetition of more states than this counts in a callee rather than being written out.
inline constexpr std::uint64_t kUnrolledMax = 128;

/// What putting a rule in place of its name would mean.
struct RuleShape {
  std::uint64_t states = 0;   ///< about
  std::uint32_t nesting = 0;  ///< levels of recursion to build it
  std::uint32_t uses = 0;     ///< how often it is named
  bool recursive = false;
  bool open = false;      ///< what ends it could also go on with it, as a number's digits
  bool nullable = false;  ///< nothing may match it
  bool loops = false;     ///< has a repetition
  bool inlined = false;
};

/// The shape of an expression whose rules have the shapes given.
RuleShape shape_of(const ParsedGrammar& grammar, const std::vector<RuleShape>& rules,
                   std::uint32_t expr);

/// Decides for every rule whether it is put where it is used or called.
///
/// Put in place, a rule's states see what follows them, so that tokens across its end need no look
/// at the stack; called, its states and their masks are shared between its uses.
std::vector<RuleShape> plan_rules(const ParsedGrammar& grammar);

}  // namespace troupe::grammar
