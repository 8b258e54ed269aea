#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "runtime/clock.h"

namespace troupe::sim {

using Task = std::function<void()>;

/// Virtual time and the one source of randomness of a history: what is due next is run next, and
/// what is due at the same time in the order in which it was asked for.
class Loop {
 public:
  explicit Loop(std::uint64_t seed) : random_(seed) {}

  TimePoint now() const { return now_; }
  void after(Duration delay, Task task) {
    tasks_.push_back({now_ + std::max(delay, Duration{}), ++numbers_, std::move(task)});
    std::push_heap(tasks_.begin(), tasks_.end());
  }
  /// Runs what is due next; false if nothing is until `limit`, which it is then.
  bool run_next(TimePoint limit) {
    if (tasks_.empty() || tasks_.front().at > limit) {
      now_ = std::max(now_, limit);
      return false;
    }
    std::pop_heap(tasks_.begin(), tasks_.end());
    const Task task = std::move(tasks_.back().run);
    now_ = std::max(now_, tasks_.back().at);
    tasks_.pop_back();
    ++events_;
    task();
    return true;
  }
  /// Drops what is left.
  void clear() { const std::vector<Due> dropped = std::exchange(tasks_, {}); }
  std::uint64_t events() const { return events_; }

  std::uint64_t draw() { return random_(); }
  std::uint64_t pick(std::uint64_t low, std::uint64_t high) {
    return low + random_() % (high - low + 1);
  }
  bool chance(std::uint64_t percent) { return pick(1, 100) <= percent; }
  Duration pick_ms(std::uint64_t low, std::uint64_t high) {
    return std::chrono::milliseconds(pick(low, high));
  }
  Duration pick_us(std::uint64_t low, std::uint64_t high) {
    return std::chrono::microseconds(pick(low, high));
  }

 private:
  struct Due {
    TimePoint at;
    std::uint64_t number;
    Task run;
    bool operator<(const Due& other) const {  // the earliest is the greatest
      return std::pair(other.at, other.number) < std::pair(at, number);
    }
  };
  std::mt19937_64 random_;
  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  std::uint64_t numbers_ = 0;
  std::uint64_t events_ = 0;
  std::vector<Due> tasks_;
};

}  // namespace troupe::sim
