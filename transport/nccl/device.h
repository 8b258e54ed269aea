#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "runtime/buffer.h"
#include "runtime/limits.h"
#include "runtime/result.h"
#include "runtime/spare_blocks.h"
#include "transport/nccl/library.h"

namespace troupe::nccl {

/// Bytes that NCCL can reach, and what keeps them.
struct Part {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<const void> owner{};
};

/// libcuda: what streams and pinned memory take. Not the runtime, which a program without kernels
/// does not have; both have the same streams and, in the primary contexts, the same memory.
class Driver {
 public:
  /// kUnavailable: there is none, or it finds no GPU.
  static Result<std::shared_ptr<const Driver>> load(const std::string& path);
  /// As Library::check.
  Status check(int code, const std::string& what) const;

  CuDeviceGet device_get = nullptr;
  CuDevicePrimaryCtxRetain retain = nullptr;
  CuDevicePrimaryCtxRelease release = nullptr;
  CuCtxPushCurrent push = nullptr;
  CuCtxPopCurrent pop = nullptr;
  CuStreamCreate stream_create = nullptr;
  CuStreamQuery stream_query = nullptr;
  CuStreamDestroy stream_destroy = nullptr;
  CuMemHostAlloc host_alloc = nullptr;
  CuMemFreeHost host_free = nullptr;

 private:
  CuInit init_ = nullptr;
  CuGetErrorString error_string_ = nullptr;
};

/// The GPU that a rank computes on, as NCCL needs it: its context, streams, and pinned memory.
///
/// Parts that are pinned, or on the device, go from where they are; others are copied into pinned
/// memory here. What comes lies in pinned memory, where the host reads it. Thread-safe.
class Device : public std::enable_shared_from_this<Device> {
 public:
  static Result<std::shared_ptr<Device>> open(std::shared_ptr<const Driver> driver, int ordinal);
  ~Device();

  /// This device is the thread's own while this lives: NCCL takes it for the communicator's.
  class Current {
   public:
    explicit Current(const Device& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Driver& driver_;
    bool pushed_;
  };

  Result<Stream> open_stream() const;
  void close_stream(Stream stream) const;
  /// Whether all that was put on it has ended, one way or another. An error is the device's.
  Result<bool> idle(Stream stream) const;

  /// Of what a payload has, where NCCL can read it.
  Result<Part> readable(const Payload& payload);
  /// Room for what comes.
  Result<Part> room(std::size_t bytes);

  /// NCCL's calls for one device come one at a time, whichever communicators they are about.
  std::mutex& calls() { return calls_; }

 private:
  Device(std::shared_ptr<const Driver> driver, int device, Context context)
      : driver_(std::move(driver)), device_(device), context_(context) {}

  const std::shared_ptr<const Driver> driver_;
  const int device_;
  const Context context_;
  std::mutex calls_;
  const std::shared_ptr<SpareBlocks> rooms_ = SpareBlocks::make(limits::kPinnedSpareBytes);
};

}  // namespace troupe::nccl
