#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "actors/device/answer_check.h"
#include "actors/device/device.h"
#include "actors/device/speed_probe.h"
#include "kernels/backend.h"
#include "kernels/stream.h"
#include "runtime/thread_pool.h"

namespace troupe {

/// The processors of a machine, or of a NUMA node; or an accelerator, whose back-end the compute
/// thread gives its work to. It has a thread of its own, since what it does takes milliseconds.
///
///     submit ──► queue ──► compute thread ──fork/join──► thread pool
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const Options& options);
  /// Drops the jobs that wait; ends the running one first, whose kernels throw from now on.
  ~CpuDevice() override;

  Status submit(std::function<void()> job, Room room = Room::kBounded) override;

  /// The device will be destroyed soon: kernels of jobs throw ThreadPool::Interrupted from now on,
  /// so that no step is waited for. Any thread.
  void interrupt() { threads_.interrupt(); }

  /// Takes an accelerator's memory and its queue; before it is used. kResourceExhausted and others:
  /// it cannot be had, and why.
  Status open();

  /// What it may compute, if it proves that it does.
  std::vector<Numerics> numerics() const;

  struct Proven {
    std::vector<Numerics> numerics;
    std::vector<std::string> notes;  ///< what people should know
  };
  /// Whether it computes what it must, in all these numerics, on every thread. Once, before it is
  /// used; from then on each probe asks some of it again, and a wrong answer is the device's end.
  /// Kernels that were never compared with a processor like this (kernels/known_answers.h), and
  /// give the same wrong answer on all threads, are not used: those of AVX-512 are. Numerics of an
  /// instruction that this processor computes otherwise than others are left out.
  Result<Proven> prove(std::span<const Numerics> numerics);
  /// Whose kernels are used.
  CpuFamily family() const { return family_; }

  /// Null: what it computes with is the host's memory.
  const std::shared_ptr<kernels::Accelerator>& accelerator() const { return accelerator_; }
  bool has_own_memory() const override { return accelerator_ != nullptr; }
  void settle() override {
    if (accelerator_) accelerator_->wait();
  }

  /// For kernels inside of jobs.
  ThreadPool& threads() { return threads_; }
  kernels::Stream::Options stream(Numerics numerics) {
    return {numerics, family_, &threads_, backend_, 0, accelerator_.get()};
  }

  bool makes_progress(TimePoint now, Duration patience) override;
  /// Does nothing while an earlier probe still waits in the queue. Also asks some questions whose
  /// answers are known.
  void probe() override;
  /// Time that the newest probe computed, times how much longer than they computed it and the jobs
  /// before it took: a clock that is throttled shows in the first, a core that is given to others
  /// in the second. Of an accelerator, what the probe took by its own clock.
  std::uint32_t probe_us() const override { return probe_us_.load(); }
  float take_utilization(TimePoint now) override;

 protected:
  void note_failed(const std::string& reason) override {
    if (accelerator_) accelerator_->give_up(reason);
  }

 private:
  void run();
  Result<Proven> prove_now(std::span<const Numerics> numerics);
  void measure_core();
  void measure_accelerator();
  void note_speed(double us);
  void ask_known();

  ThreadPool threads_;
  const kernels::Backend* const backend_;              ///< null: the CPU's
  std::shared_ptr<kernels::Accelerator> accelerator_;  ///< null: it has no memory of its own

  std::atomic<std::uint32_t> probe_us_{0};
  std::atomic<bool> probing_{false};
  /// What jobs other than probes cost since the last probe.
  struct Spent {
    Duration took{}, computed{};
    bool probe = false;  ///< the job that runs is one
  };
  // On the compute thread only.
  Spent spent_;
  CpuFamily family_;                       ///< fixed once it has proven itself
  std::optional<AnswerCheck> answers_;     ///< always
  std::optional<SpeedProbe> speed_probe_;  ///< an accelerator's, once it is asked
  bool unasked_ = false;                   ///< it lacked memory to be asked, once

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  bool stop_ = false;                       // guarded by mutex_
  bool busy_ = false;                       // guarded by mutex_
  TimePoint busy_since_{};                  // guarded by mutex_
  Duration busy_for_{};                     // guarded by mutex_; since the last take_utilization
  TimePoint measured_at_ = now();           // guarded by mutex_
  struct Progress {
    std::uint64_t seen = 0;
    TimePoint at{};
  } progress_;  // guarded by mutex_

  std::thread thread_;  // last: it uses everything above
};

}  // namespace troupe
