#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/ids.h"

namespace troupe {

/// The lower node first.
using NodePair = std::pair<NodeId, NodeId>;

/// Pairs of nodes in rounds, so that in each round a node is in one pair at most.
struct PairRounds {
  std::vector<std::vector<NodePair>> rounds;
  std::size_t pairs = 0;     ///< of all rounds
  std::size_t left_out = 0;  ///< beyond the limit
};

/// A tournament in which everyone meets everyone once (the circle method): one round fewer than
/// there are nodes, or as many if their number is odd. `nodes` rise. `only`: that node's pairs.
/// The first `pairs_max` are taken, whole rounds first: of many nodes each is then in as many pairs
/// as the others, give or take one. `one_at_a_time`: a round a pair.
PairRounds pair_rounds(const std::vector<NodeId>& nodes, std::optional<NodeId> only,
                       std::size_t pairs_max, bool one_at_a_time);

}  // namespace troupe
