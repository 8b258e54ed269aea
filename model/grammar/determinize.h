#pragma once

#include "model/grammar/automaton.h"
#include "model/grammar/nfa.h"

namespace troupe::grammar {

/// Makes one state of every set of an NFA's states that the same bytes, calls and tokens lead to,
/// callee by callee. Where that would take too many, the callee keeps its states, and what follows
/// them handles sets.
Automaton determinize(const Nfa& nfa);

}  // namespace troupe::grammar
