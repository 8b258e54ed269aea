#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/graph_queue.h"
#include "kernels/scratch.h"
#include "runtime/buffer.h"
#include "runtime/limits.h"
#include "runtime/spare_blocks.h"

namespace troupe::kernels {

/// What an accelerator does not get over: nothing that it computes from then on counts. `what()` is
/// for people.
class AcceleratorFailed : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Another device has failed, which has what was to be read: no fault of the one that reads.
class OtherFailed : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Memory that comes back, for those who wait for some. Thread-safe.
class MemoryNews {
 public:
  void note() {
    {
      const std::lock_guard lock(mutex_);
      ++times_;
    }
    changed_.notify_all();
  }
  std::uint64_t times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }
  /// Until some came back since it had `times` times; false: that long none did.
  bool wait(std::uint64_t times, std::chrono::milliseconds most) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return times_ != times; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::uint64_t times_ = 0;  // guarded by mutex_
};

/// A device that computes for its host: memory of its own, and one queue of work that ops and
/// copies join in order. Calls return when the work is in the queue, of which the device is given
/// a batch at a time (graph_queue.h); only wait(), and what says so, waits for it.
///
///     host ── write ──► staging ──copy──► memory ◄──► ops
///          ◄─ read ──── staging ◄──copy── memory
///     host_memory() ──── write, fetch ──── memory        what travels, without staging
///
/// What has failed stays so: calls throw AcceleratorFailed from then on, at the latest wait().
/// The queue is used by one thread at a time. Device memory is touched by ops and copies only.
class Accelerator : private GraphQueue::Device {
 public:
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;
  ~Accelerator() override = default;

  static constexpr std::size_t kAlignment = 256;
  /// Host bytes that wait for copies, about; what is more waits first.
  static constexpr std::size_t kStagingBytes = 64u << 20;
  /// The same of what is told, which takes as much of the device's memory.
  static constexpr std::size_t kToldBytes = 8u << 20;
  /// A batch is some steps' work, hundreds of milliseconds at most: a device that ends none for so
  /// long hangs, and has failed.
  static constexpr std::chrono::seconds kWaitMax{5};

  // --- By any thread ---

  /// Memory of the device, not cleared, on a boundary of kAlignment. It is used again once nobody
  /// holds it and what was queued until then has run. Throws std::bad_alloc.
  virtual std::shared_ptr<std::byte> memory(std::size_t bytes) = 0;
  /// The same, but memory that comes back is waited for as long as `goes_on`: until none has for
  /// `patience` in all.
  std::shared_ptr<std::byte> memory(std::size_t bytes, std::chrono::milliseconds patience,
                                    const std::function<bool()>& goes_on);
  /// Host memory that copies reach, for what others read or sent, not cleared: pinning takes long,
  /// so it is used again once nobody holds it. Throws std::bad_alloc.
  std::shared_ptr<std::byte> host_memory(std::size_t bytes) {
    return travelling_->take(bytes, pinned_);
  }
  /// Fills memory that no op uses yet, and waits for it.
  virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
  /// What lies in memory that no op changes.
  virtual void download(std::span<std::byte> to, const std::byte* from) = 0;
  /// The same from the memory of a device of its kind, `of`.
  virtual void upload_from(std::byte* to, Accelerator& of, const std::byte* from,
                           std::size_t bytes);
  bool has_failed() const;
  /// It counts as failed, for a reason that it did not find itself.
  void give_up(const std::string& why);
  /// Counts up while work goes on.
  virtual std::uint64_t progress() const = 0;

  // --- The queue ---

  /// An op begins: what those before were told may be forgotten once they ran.
  void begin_op();
  void launch(const Work& kernel) {
    told_passed_ = false;
    put(kernel);
  }
  /// The host bytes may go when it returns.
  void write(void* to, const void* from, std::size_t bytes);
  /// The same of pinned bytes, straight: they are held, and must stay as they are, until then. They
  /// may be another's, which graphs do not take: each copy goes by itself, after what is queued.
  void write(void* to, const Payload& from);
  /// The same of what a device has (MemoryKind::kDevice), this one or another. Throws OtherFailed.
  void copy(void* to, const Payload& from);
  /// Straight into pinned memory, which is held: there after wait().
  void fetch(std::shared_ptr<Buffer> to, const void* from, std::size_t bytes);
  /// Waits for all that is queued, and these bytes.
  void read(void* to, const void* from, std::size_t bytes);
  /// The same; what it gives stays until the next call of any of these.
  const std::byte* read(const void* from, std::size_t bytes);

  /// Room for the host to fill for what an op launches next, and not to touch after that; the
  /// device has it at `there` until the op ends. All that is told goes with its batch, as one copy:
  /// it is filled before anything else is asked for, scratch too, which may send it.
  struct Told {
    std::byte *here = nullptr, *there = nullptr;
  };
  Told tell(std::size_t bytes);

  /// Gives the device what it has not been given yet. `singly`: as it comes, not as a graph.
  void flush(bool singly = false);
  /// For all that is queued, with no other queue.
  void wait();
  /// How long the device takes for what `work` queues, by its own clock, from when all before has
  /// ended. If it has to wait for the host meanwhile, that counts on a GPU. Waits for it.
  virtual std::chrono::nanoseconds timed(const std::function<void()>& work) = 0;
  /// How often the host has waited.
  std::uint64_t waits() const { return waits_; }

  const GraphQueue::Counts& counts() const { return queue_.counts(); }
  /// What the host has read so far.
  std::uint64_t bytes_read() const { return bytes_read_; }

 protected:
  Accelerator(const Scratch::Memory& pinned, std::size_t staging_bytes)
      : pinned_(pinned), staging_bytes_(staging_bytes), staging_(pinned) {}
  /// Whoever keeps the device's memory tells what comes back, and may outlive it.
  const std::shared_ptr<MemoryNews>& memory_news() const { return memory_news_; }
  /// By now, and from now on. The first reason counts.
  [[noreturn]] void fail(const std::string& why);
  /// Throws if it has failed. Any thread.
  void check() const;
  /// Sleeps so long; true: less, since it has failed. Any thread.
  bool fails_within(std::chrono::nanoseconds most) const;
  /// The calling thread is about to give the device work.
  virtual void attach() {}
  /// It joins the queue now. Of what a copy moves, staging is not touched from here on.
  virtual void joins(const Work& work) = 0;
  /// What it was told is not read any more, and was not to be changed until now: whoever fills it
  /// while it takes scratch, which may send it, does. Twins look.
  virtual void forgets(std::span<const std::byte>) {}
  /// Copies from another's memory, or its own, after what has been given to the device.
  virtual void give_copy(std::byte* to, Accelerator& of, const std::byte* from, std::size_t bytes);
  /// A batch was given to the device.
  virtual void note_given() {}
  /// Waits for all that the device has been given.
  virtual void wait_given() = 0;

 private:
  /// Host memory and as much of the device's.
  struct Telling {
    std::shared_ptr<std::byte> here, there;
    std::size_t bytes = 0, used = 0, sent = 0;
  };
  void put(const Work& work);
  /// Room for the host to fill before it is sent, and until wait() not to touch after that.
  std::byte* stage(std::size_t bytes);
  /// Waits if much is staged. What was staged has been sent.
  void bound_staging();
  void send(void* to, const std::byte* staged, std::size_t bytes);

  const std::shared_ptr<MemoryNews> memory_news_ = std::make_shared<MemoryNews>();
  const Scratch::Memory pinned_;  ///< gives host memory that copies reach
  const std::size_t staging_bytes_;
  GraphQueue queue_;
  Scratch staging_;
  const std::shared_ptr<SpareBlocks> travelling_ = SpareBlocks::make(limits::kPinnedSpareBytes);
  std::vector<std::shared_ptr<const void>> held_;  ///< by copies that are queued
  std::vector<Telling> telling_;
  std::size_t staged_bytes_ = 0, told_bytes_ = 0;
  std::uint64_t waits_ = 0;
  std::uint64_t bytes_read_ = 0;
  bool passed_ = false;       ///< what is staged has been waited for
  bool told_passed_ = false;  ///< and all kernels that read what was told
  mutable std::mutex failed_mutex_;
  mutable std::condition_variable failed_changed_;
  std::string failed_;  // guarded by failed_mutex_
};

}  // namespace troupe::kernels
