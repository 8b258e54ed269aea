#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/result.h"

namespace troupe {

/// A thread that does one job after the other, in their order. Thread-safe.
class JobQueue {
 public:
  /// At most `jobs_max` wait. `nice`: how far the thread stands back behind all others, as nice(2).
  explicit JobQueue(std::size_t jobs_max, int nice = 0);
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;

  /// kResourceExhausted when it is full, kCancelled after its end.
  Status add(std::function<void()> job);
  /// Waits for the job that runs, and drops those that have not begun. Not from a job.
  void end();

 private:
  void run();

  const std::size_t jobs_max_;
  const int nice_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;  // guarded by mutex_
  bool ended_ = false;                         // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe
