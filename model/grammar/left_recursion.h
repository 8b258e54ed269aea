#pragma once

#include <cstddef>

#include "model/grammar/automaton.h"

namespace troupe::grammar {

/// The calls in the largest circle of callees that begin with each other: 2 for
/// `a ::= b "x" | "y"` with `b ::= a "z" | a`.
std::size_t widest_left_recursion(const Automaton& automaton);

}  // namespace troupe::grammar
