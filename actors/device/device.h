#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "model/expert_set.h"
#include "runtime/clock.h"
#include "runtime/ids.h"
#include "runtime/result.h"
#include "runtime/thread_pool.h"

namespace troupe {

/// One CPU socket (later: one GPU): its memory, and the one compute queue that the shards and
/// groups on it share. An actor with a thread of its own, since what it does takes milliseconds:
/// its mailbox is the queue, its messages are jobs, run in the order they came.
///
///     LayerShard ──job──┐
///     LayerShard ──job──┼──► queue ──► compute thread ──fork/join──► thread pool
///     ExpertGroup ─job──┘                   └──► each job tells its owner when it is done
class Device {
 public:
  struct Options {
    std::uint32_t index = 0;
    std::string kind = "cpu";
    std::uint64_t memory_total = 0;  ///< bytes it may use for weights, cache and scratch
    int threads = 1;
  };
  explicit Device(const Options& options);
  /// Drops the jobs that wait; ends the running one first, whose kernels throw from now on.
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Options& options() const { return options_; }

  /// Puts a job into the queue; jobs must not throw. kResourceExhausted beyond
  /// limits::kComputeQueueMax.
  Status submit(std::function<void()> job);

  /// The device will be destroyed soon: kernels of jobs throw ThreadPool::Interrupted from now on,
  /// so that no step is waited for. Any thread.
  void interrupt() { threads_.interrupt(); }

  /// For kernels inside of jobs.
  ThreadPool& threads() { return threads_; }

  /// The experts that this device hosts, as its ExpertGroup published them last; never null. Shards
  /// on the device run them directly.
  std::shared_ptr<const ExpertSet> experts() const;
  void publish(std::shared_ptr<const ExpertSet> experts);

  /// Counts what weights and caches take. The claim gives it back when it goes.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept { *this = std::move(other); }
    Claim& operator=(Claim&& other) noexcept;
    ~Claim();

    /// Takes `bytes` out of it, as a claim of their own; at most what it has.
    Claim split(std::uint64_t bytes);

   private:
    friend class Device;
    Device* device_ = nullptr;
    std::uint64_t bytes_ = 0;
  };
  /// kResourceExhausted, saying how many bytes are missing.
  Result<Claim> claim(std::uint64_t bytes, const std::string& what);
  std::uint64_t memory_used() const { return memory_used_.load(); }

  /// Alive means working: false when a job has run since before `since` and no kernel of it has
  /// begun or ended since then.
  bool makes_progress(TimePoint now, Duration patience);

  /// Marks it as failed: it computes no more, whoever asks gets an error. The first reason counts.
  /// Any thread.
  void fail(const std::string& reason);
  /// Why it computes no more; empty: it does.
  std::string failed() const;
  /// Told once, from the thread that called fail(). Set before the device is used.
  void on_failed(std::function<void()> told) { on_failed_ = std::move(told); }

  /// Has a small fixed piece of arithmetic run on the compute thread, unless one still waits there:
  /// how long it takes says how fast the device is now.
  void probe();
  /// Time that the newest probe computed, times how much longer than they computed it and the jobs
  /// before it took: a clock that is throttled shows in the first, a core that is given to others
  /// in the second. 0: none yet.
  std::uint32_t probe_us() const { return probe_us_.load(); }

  /// Share of the time since the last call that the compute thread was busy, [0, 1].
  float take_utilization(TimePoint now);

 private:
  void run();

  const Options options_;
  ThreadPool threads_;
  std::atomic<std::uint64_t> memory_used_{0};

  std::function<void()> on_failed_;
  mutable std::mutex failed_mutex_;
  std::string failed_;  // guarded by failed_mutex_

  std::atomic<std::uint32_t> probe_us_{0};
  std::atomic<bool> probing_{false};
  // On the compute thread only, since the last probe.
  Duration jobs_took_{}, jobs_computed_{};

  mutable std::mutex experts_mutex_;
  std::shared_ptr<const ExpertSet> experts_;  // guarded by experts_mutex_

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
