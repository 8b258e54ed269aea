#pragma once

#include <string>

#include "tests/sim/history.h"
#include "tests/sim/world.h"

namespace troupe::sim {

struct Outcome {
  std::string violation;  ///< of the first rule that was broken; empty: none
  Counters counters;
};

/// Runs one life of a cluster: it forms under its faults, heals, must serve all requests and stay
/// calm, and ends in order.
Outcome run_history(const History& history);

/// The same history with as few faults and requests as still break a rule: each is left out in
/// turn, and stays out if a rule is still broken.
History shrink(History history);

/// For people: the shrunk history, the rule that it breaks, and how to replay it.
std::string explain(const History& history);

}  // namespace troupe::sim
