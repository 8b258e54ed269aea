#pragma once

#include <cstddef>
#include <vector>

#include "runtime/ids.h"

namespace troupe {

/// A device that has room for one more shard of a stage.
struct Seat {
  std::size_t device = 0;  ///< any number that rises in the order of the devices
  NodeId node;
  std::size_t shards = 0;  ///< that are on it
  std::size_t held = 0;    ///< of the stage's ranks, those whose weights its node has in memory
};

/// Which `count` of these devices the ranks of a stage get; all if there are fewer. Those with the
/// fewest shards; among these on one node if one has enough of them, since ranks talk in every
/// layer, else on as few as can be; then where weights are in memory; then the first. `seats` are
/// in the order of the devices; so is the answer.
std::vector<Seat> best_seats(std::vector<Seat> seats, std::size_t count);

}  // namespace troupe
