#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "actors/device/device.h"
#include "runtime/thread_pool.h"

namespace troupe {

/// A CPU socket. It has a thread of its own, since what it does takes milliseconds.
///
///     submit ──► queue ──► compute thread ──fork/join──► thread pool
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const Options& options);
  /// Drops the jobs that wait; ends the running one first, whose kernels throw from now on.
  ~CpuDevice() override;

  Status submit(std::function<void()> job) override;

  /// The device will be destroyed soon: kernels of jobs throw ThreadPool::Interrupted from now on,
  /// so that no step is waited for. Any thread.
  void interrupt() { threads_.interrupt(); }

  /// For kernels inside of jobs.
  ThreadPool& threads() { return threads_; }

  bool makes_progress(TimePoint now, Duration patience) override;
  /// Does nothing while an earlier probe still waits in the queue.
  void probe() override;
  /// Time that the newest probe computed, times how much longer than they computed it and the jobs
  /// before it took: a clock that is throttled shows in the first, a core that is given to others
  /// in the second.
  std::uint32_t probe_us() const override { return probe_us_.load(); }
  float take_utilization(TimePoint now) override;

 private:
  void run();

  ThreadPool threads_;

  std::atomic<std::uint32_t> probe_us_{0};
  std::atomic<bool> probing_{false};
  // On the compute thread only, since the last probe.
  Duration jobs_took_{}, jobs_computed_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  bool stop_ = false;                       // guarded by mutex_
  bool busy_ = false;                       // guarded by mutex_
  TimePoint busy_since_{};                  // guarded by mutex_
  Duration busy_for_{};                     // guarded by mutex_; since the last take_utilization
  TimePoint measured_at_ = now();           // guarded by mutex_
  std::uint64_t progress_seen_ = 0;         // guarded by mutex_
  TimePoint progress_at_{};                 // guarded by mutex_

  std::thread thread_;  // last: it uses everything above
};

}  // namespace troupe
