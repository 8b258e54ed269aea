#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe {

/// Runs jobs that read files, one at a time; a newer job cancels the one before. A job whose read
/// hangs costs its thread: once it was cancelled and has not ended within kReadPatience, the newer
/// one runs beside it, until kHungReadsMax hang.
class Loader {
 public:
  using Job = std::function<void(const std::atomic<bool>& cancelled)>;

  Loader();
  /// Cancels everything. A job that hangs is left behind, with what it holds: it may use nothing
  /// else by then.
  ~Loader();
  /// Instead of the job, `refused` is called if too many hang. A job without it cannot hang: it is
  /// always waited for.
  void run(Job job, std::function<void()> refused = {});
  /// Cancels the running job and drops the one that waits.
  void cancel();

 private:
  struct Task {
    Job job;
    std::function<void()> refused;
    std::atomic<bool> cancelled{false};
    bool ended = false;  // guarded by the state's mutex
    std::thread thread;
  };
  using TaskPtr = std::shared_ptr<Task>;
  /// What a job that is left behind still needs.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
  };
  static void work(const std::shared_ptr<State>& state, const TaskPtr& task);
  void loop();
  bool ends(std::unique_lock<std::mutex>& lock, const TaskPtr& task);
  void finish_running(std::unique_lock<std::mutex>& lock);
  void begin(std::unique_lock<std::mutex>& lock, const TaskPtr& task);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  TaskPtr next_, running_;     // guarded by the state's mutex, as the next two
  std::vector<TaskPtr> hung_;
  bool stop_ = false;
  std::thread thread_;         // waits for jobs and for their ends, and does nothing else
};

}  // namespace troupe
