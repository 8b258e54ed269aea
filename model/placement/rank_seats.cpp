#include "model/placement/rank_seats.h"

#include <algorithm>
#include <tuple>

namespace troupe {
namespace {

bool fewer_shards(const Seat& a, const Seat& b) {
  return std::tie(a.shards, a.device) < std::tie(b.shards, b.device);
}

/// The seats of one node: [first, last), those with fewer shards first.
struct NodeSeats {
  std::size_t first = 0, last = 0;
  std::size_t size() const { return last - first; }
};

std::vector<NodeSeats> by_node(std::vector<Seat>& seats) {
  std::vector<NodeSeats> nodes;
  for (std::size_t first = 0, last = 0; first < seats.size(); first = last) {
    while (last < seats.size() && seats[last].node == seats[first].node) ++last;
    const auto at = [&](std::size_t i) { return seats.begin() + static_cast<std::ptrdiff_t>(i); };
    std::sort(at(first), at(last), fewer_shards);
    nodes.push_back({first, last});
  }
  return nodes;
}

}  // namespace

std::vector<Seat> best_seats(std::vector<Seat> seats, std::size_t count) {
  if (seats.size() <= count) return seats;
  std::vector<std::size_t> shards;
  for (const Seat& seat : seats) shards.push_back(seat.shards);
  const auto last = shards.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(shards.begin(), last, shards.end());
  std::erase_if(seats, [most = *last](const Seat& seat) { return seat.shards > most; });
  std::vector<NodeSeats> nodes = by_node(seats);
  std::vector<Seat> best;
  while (best.size() < count) {
    const std::size_t left = count - best.size();
    const auto rank = [&](const NodeSeats& node) {
      const std::size_t takes = std::min(left, node.size());
      std::size_t busy = 0;
      for (std::size_t i = 0; i < takes; ++i) busy += seats[node.first + i].shards;
      return std::tuple(left - takes, busy, count - std::min(count, seats[node.first].held),
                        node.first);
    };
    const auto node =
        std::min_element(nodes.begin(), nodes.end(),
                         [&](const NodeSeats& a, const NodeSeats& b) { return rank(a) < rank(b); });
    for (std::size_t i = 0; i < std::min(left, node->size()); ++i)
      best.push_back(seats[node->first + i]);
    nodes.erase(node);
  }
  std::sort(best.begin(), best.end(),
            [](const Seat& a, const Seat& b) { return a.device < b.device; });
  return best;
}

}  // namespace troupe
