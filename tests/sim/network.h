#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "tests/sim/loop.h"

namespace troupe::sim {

/// Connections between machines: what is sent on one arrives in order and late, on several in any
/// order. A direction that is cut holds what it carries, as TCP does, until it is healed. Machine 0
/// is the head, machine w + 1 is worker w.
class Network {
 public:
  explicit Network(Loop& loop) : loop_(loop) {}

  std::uint32_t open(int a, int b);
  /// `arrive` runs at the other end; never when the connection is closed first.
  void send(std::uint32_t connection, int from, Task arrive);
  /// What is under way is lost; nobody is told.
  void close(std::uint32_t connection) { connections_.erase(connection); }

  void cut(int from, int to) { ++cuts_[{from, to}]; }
  void heal(int from, int to);
  /// Everything takes 20 to 200 ms longer there, and nothing is lost.
  void slow_down(int from, int to) { ++slow_[{from, to}]; }
  void speed_up(int from, int to) {
    if (const auto it = slow_.find({from, to}); --it->second == 0) slow_.erase(it);
  }
  bool reaches(int from, int to) const { return !cuts_.contains({from, to}); }
  bool both_reach(int a, int b) const { return reaches(a, b) && reaches(b, a); }

  /// Mostly some hundred microseconds, now and then up to 150 ms.
  Duration delay();
  /// The most that was ever under way on one connection.
  std::size_t under_way_most() const { return under_way_most_; }

 private:
  struct Direction {
    TimePoint last{};
    std::size_t under_way = 0;
    std::deque<Task> held;
  };
  struct Connection {
    int ends[2];
    Direction directions[2];  // [0]: from ends[0]
  };
  void schedule(std::uint32_t connection, int direction, Task arrive);
  void flush(std::uint32_t connection, int direction);

  Loop& loop_;
  std::uint32_t next_ = 1;
  std::map<std::uint32_t, Connection> connections_;
  std::map<std::pair<int, int>, int> cuts_;
  std::map<std::pair<int, int>, int> slow_;
  std::size_t under_way_most_ = 0;
};

}  // namespace troupe::sim
