#include "actors/supervisor/pair_rounds.h"

#include <algorithm>

namespace troupe {

PairRounds pair_rounds(const std::vector<NodeId>& nodes, std::optional<NodeId> only,
                       std::size_t pairs_max, bool one_at_a_time) {
  PairRounds found;
  // With an odd number of seats one of them is empty: who would meet it rests.
  const std::size_t seats = nodes.size() + nodes.size() % 2;
  for (std::size_t round = 0; round + 1 < seats; ++round) {
    std::vector<NodePair> pairs;
    // The last seat stays, the others turn around the table by one a round.
    const auto seat = [&](std::size_t i) { return i + 1 == seats ? i : (i + round) % (seats - 1); };
    for (std::size_t i = 0; i < seats / 2; ++i) {
      const auto [low, high] = std::minmax({seat(i), seat(seats - 1 - i)});
      if (high == nodes.size()) continue;
      if (only && nodes[low] != *only && nodes[high] != *only) continue;
      if (found.pairs == pairs_max) {
        ++found.left_out;
        continue;
      }
      ++found.pairs;
      pairs.emplace_back(nodes[low], nodes[high]);
    }
    std::sort(pairs.begin(), pairs.end());
    if (!one_at_a_time) {
      if (!pairs.empty()) found.rounds.push_back(std::move(pairs));
      continue;
    }
    for (const NodePair& pair : pairs) found.rounds.push_back({pair});
  }
  return found;
}

}  // namespace troupe
