#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe {

/// A thread that does jobs of several owners in turns, each owner's in their order: one who brings
/// a thousand does not keep the others out. How many there may be is its users' to bound.
/// Thread-safe.
class FairWorker {
 public:
  /// `nice`: how far the thread stands back behind all others, as nice(2).
  explicit FairWorker(int nice = 0);
  ~FairWorker() { join(); }
  FairWorker(const FairWorker&) = delete;

  /// Not after join(). A job must not throw.
  void post(std::uint64_t owner, std::function<void()> job);
  /// Does what is still to be done, and ends. Not from a job.
  void join();

 private:
  using Jobs = std::deque<std::function<void()>>;
  void run();

  const int nice_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::uint64_t, Jobs>> turns_;  // guarded by mutex_; none without a job
  bool ended_ = false;                                // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe
