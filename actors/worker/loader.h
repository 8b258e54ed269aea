#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace troupe {

/// A thread for work that reads files: one job at a time; a newer job cancels the one before.
class Loader {
 public:
  using Job = std::function<void(const std::atomic<bool>& cancelled)>;

  Loader();
  /// Cancels the running job and waits for its end.
  ~Loader();
  void run(Job job);
  /// Cancels the running job and drops the one that waits.
  void cancel();

 private:
  struct Task {
    Job job;
    std::atomic<bool> cancelled{false};
  };
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Task> next_, running_;  // guarded by mutex_
  bool stop_ = false;                     // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe
