#include "tests/sim/network.h"

namespace troupe::sim {

std::uint32_t Network::open(int a, int b) {
  connections_[next_] = {{a, b}, {}};
  return next_++;
}

Duration Network::delay() {
  return loop_.pick(0, 60) == 0 ? loop_.pick_ms(5, 150) : loop_.pick_us(30, 1500);
}

void Network::send(std::uint32_t connection, int from, Task arrive) {
  const auto it = connections_.find(connection);
  if (it == connections_.end()) return;
  const int direction = it->second.ends[0] == from ? 0 : 1;
  under_way_most_ = std::max(under_way_most_, ++it->second.directions[direction].under_way);
  schedule(connection, direction, std::move(arrive));
}

void Network::schedule(std::uint32_t connection, int direction, Task arrive) {
  Connection& over = connections_.at(connection);
  Direction& way = over.directions[direction];
  Duration takes = delay();
  if (slow_.contains({over.ends[direction], over.ends[1 - direction]}))
    takes += loop_.pick_ms(20, 200);
  way.last = std::max(way.last, loop_.now() + takes);
  loop_.after(way.last - loop_.now(), [this, connection, direction, arrive = std::move(arrive)] {
    const auto it = connections_.find(connection);
    if (it == connections_.end()) return;
    Connection& c = it->second;
    auto& held = c.directions[direction].held;
    if (!held.empty() || !reaches(c.ends[direction], c.ends[1 - direction]))
      return held.push_back(arrive);
    --c.directions[direction].under_way;
    arrive();
  });
}

void Network::heal(int from, int to) {
  const auto cut = cuts_.find({from, to});
  if (cut == cuts_.end() || --cut->second > 0) return;
  cuts_.erase(cut);
  for (auto& [number, connection] : connections_) {
    for (int d = 0; d < 2; ++d) {
      if (connection.ends[d] != from || connection.ends[1 - d] != to) continue;
      loop_.after(delay(), [this, n = number, d] { flush(n, d); });
    }
  }
}

/// What was held arrives in order, before anything that was sent later.
void Network::flush(std::uint32_t connection, int direction) {
  auto it = connections_.find(connection);
  while (it != connections_.end()) {
    Connection& c = it->second;
    Direction& way = c.directions[direction];
    if (way.held.empty() || !reaches(c.ends[direction], c.ends[1 - direction])) return;
    const Task arrive = std::move(way.held.front());
    way.held.pop_front();
    --way.under_way;
    arrive();
    it = connections_.find(connection);  // it may have been closed
  }
}

}  // namespace troupe::sim
