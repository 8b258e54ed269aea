#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/device/expert_pool.h"
#include "model/expert_set.h"
#include "runtime/clock.h"
#include "runtime/device_health.h"
#include "runtime/device_options.h"
#include "runtime/result.h"

namespace troupe {

/// One machine's processors, or one NUMA node's, or one GPU: its memory, and the one compute
/// queue that the shards and groups on it share. Its messages are jobs, run in the order they came.
///
///     LayerShard ──job──┐
///     LayerShard ──job──┼──► queue ──► compute thread ──► each job tells its owner what it found
///     ExpertGroup ─job──┘
///
/// In a process it is a CpuDevice; the simulation has one in virtual time. Thread-safe.
class Device {
 public:
  using Options = DeviceOptions;
  explicit Device(const Options& options);
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Options& options() const { return options_; }

  /// Whether a job waits for room in the queue. What ends a step that began always has some: that
  /// it ends is what others rely on, and there are no more of these than steps.
  enum class Room : std::uint8_t { kBounded, kAlways };
  /// Puts a job into the queue; jobs must not throw. kResourceExhausted beyond
  /// limits::kComputeQueueMax.
  virtual Status submit(std::function<void()> job, Room room = Room::kBounded) = 0;

  /// Says that the job of an express step waits in the queue, until what comes back is dropped:
  /// other steps leave the device between their layers meanwhile.
  std::shared_ptr<const void> note_express();
  bool express_waits() const { return express_waiting_.load() > 0; }

  /// Alive means working: false when a job has run for longer than `patience` while no kernel of it
  /// began or ended. An accelerator that does not come back from its driver fails over being asked.
  virtual bool makes_progress(TimePoint now, Duration patience) = 0;
  /// Has a small fixed piece of arithmetic run in the queue: how long it takes says how fast the
  /// device is now.
  virtual void probe() = 0;
  /// What the newest probe took, in microseconds; 0: none yet.
  virtual std::uint32_t probe_us() const = 0;
  /// As its driver told last. Any thread.
  DeviceHealth health() const;
  void set_health(const DeviceHealth& health);
  /// Share of the time since the last call that the device was busy, [0, 1].
  virtual float take_utilization(TimePoint now) = 0;
  /// Whether it computes with memory of its own, not the host's.
  virtual bool has_own_memory() const { return false; }

  /// The experts that this device hosts, as its node published them last; never null.
  std::shared_ptr<const ExpertSet> experts() const;
  /// Those of them that its own shards use without asking: of the version in force. What else is
  /// here may not be proven yet.
  std::shared_ptr<const ExpertSet> serving_experts() const;
  void publish(std::shared_ptr<const ExpertSet> experts,
               std::shared_ptr<const ExpertSet> serving);

  /// What waits for these; inside of jobs.
  ExpertPool& pool() { return pool_; }
  /// How often an expert's weights were read by passes.
  std::uint64_t experts_read() const { return experts_read_.load(); }
  void count_experts_read(std::uint64_t experts) { experts_read_.fetch_add(experts); }

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

  /// Work was given up half-way, inside of a job: what it queued ends, and what it held is free.
  virtual void settle() {}
  /// Marks it as failed: it computes no more and every user gets an error. The first reason counts.
  void fail(const std::string& reason);
  /// Why it computes no more; empty: it does.
  std::string failed() const;
  /// Told once, from the thread that called fail(). Set before the device is used.
  void on_failed(std::function<void()> told) { on_failed_ = std::move(told); }

 protected:
  /// It has just been marked as failed, by any thread.
  virtual void note_failed(const std::string&) {}

 private:
  const Options options_;
  std::atomic<std::uint64_t> memory_used_{0};
  std::function<void()> on_failed_;
  mutable std::mutex health_mutex_;
  DeviceHealth health_;  // guarded by health_mutex_
  mutable std::mutex failed_mutex_;
  std::string failed_;  // guarded by failed_mutex_
  mutable std::mutex experts_mutex_;
  std::shared_ptr<const ExpertSet> experts_;  // guarded by experts_mutex_
  std::shared_ptr<const ExpertSet> serving_;  // guarded by experts_mutex_
  std::atomic<std::uint64_t> experts_read_{0};
  std::atomic<int> express_waiting_{0};
  ExpertPool pool_{*this};
};

}  // namespace troupe
