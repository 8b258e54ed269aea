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
  Direction& way = connections_.at(connection).directions[direction];
  way.last = std::max(way.last, loop_.now() + delay());
  loop_.after(way.last - loop_.now(), [this, connection, direction, arrive = std::move(arrive)] {
    const auto it = connections_.find(connection);
    if (it == connections_.end()) return;
    Connection& c = it->second;
    if (!reaches(c.ends[direction], c.ends[1 - direction])) {
      c.directions[direction].held.push_back(arrive);
      return;
    }
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
      std::deque<Task> held = std::exchange(connection.directions[d].held, {});
      for (Task& arrive : held) schedule(number, d, std::move(arrive));
    }
  }
}

}  // namespace troupe::sim
