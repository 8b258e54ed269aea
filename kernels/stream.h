#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/accelerator.h"
#include "kernels/scratch.h"
#include "kernels/tensor.h"
#include "runtime/buffer.h"
#include "runtime/cpu_family.h"
#include "runtime/numerics.h"
#include "runtime/thread_pool.h"

namespace troupe::kernels {

struct Backend;  // kernels/backend.h

/// Orders work on one device: ops given to a stream run one after the other. Used by one thread at
/// a time, whose float mode is set (runtime/float_mode.h).
///
///     Stream::Scope scope(stream);                     // what is allocated below goes at its end
///     Tensor x = stream.alloc(rows, hidden);           // [rows, hidden] float32, not cleared
///
/// On a CPU it is a thread pool, and an op has ended when its call returns. On an accelerator an op
/// is then in the queue, which all streams of the device share, and what it reads and writes is the
/// device's: the host puts numbers there and gets them by read(), write() and what is beside them.
/// On a CPU these copy what has to lie elsewhere, and else nothing.
class Stream {
 public:
  class Room;
  struct Options {
    Numerics numerics = Numerics::kReference;
    CpuFamily family = CpuFamily::kBaseline;
    ThreadPool* pool = nullptr;        ///< null: everything runs on the calling thread
    const Backend* backend = nullptr;  ///< null: the CPU's
    std::uint64_t order_seed = 0;      ///< of the CUDA back-end's twin: in which order threads run
    /// A device with memory of its own; null: what a back-end computes with is the host's.
    Accelerator* accelerator = nullptr;
  };
  explicit Stream(const Options& options);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Numerics numerics() const { return options_.numerics; }
  CpuFamily family() const { return options_.family; }
  ThreadPool* pool() const { return options_.pool; }
  const Backend& backend() const { return *options_.backend; }
  /// What computes an op that begins now.
  const Backend& next_op() {
    if (accelerator() != nullptr) accelerator()->begin_op();
    return backend();
  }

  class Scope {
   public:
    explicit Scope(Stream& stream) : scope_(stream.scratch_) {}

   private:
    Scratch::Scope scope_;
  };

  /// Throws std::bad_alloc when memory is short.
  Tensor alloc(std::int64_t rows, std::int64_t dim, DType dtype = DType::kF32) {
    const auto bytes = static_cast<std::size_t>(rows * dim) * dtype_size(dtype);
    return device_tensor(scratch_.take<std::byte>(bytes), dtype, rows, dim);
  }
  /// [rows, heads, dim].
  Tensor alloc_heads(std::int64_t rows, std::int64_t heads, std::int64_t dim) {
    return alloc(rows, heads * dim).split(heads);
  }
  Scratch& scratch() { return scratch_; }
  /// Dense [rows, dim] in memory that ops reach.
  Tensor device_tensor(void* data, DType dtype, std::int64_t rows, std::int64_t dim) const {
    Tensor x = host_tensor(data, dtype, rows, dim);
    if (accelerator() != nullptr) x.memory = MemoryKind::kDevice;
    return x;
  }
  /// Memory that ops reach, not cleared. Throws std::bad_alloc.
  std::shared_ptr<std::byte> memory(std::size_t bytes) const;

  /// Host bytes that stay as they are, where ops reach them: these themselves, which must outlive
  /// it, or a copy, which is waited for. Any thread.
  std::shared_ptr<const std::byte> place(std::span<const std::byte> bytes) const;

  /// What ops have written, on the host: waits for them. It stays until the next call on a stream
  /// of the device.
  const std::byte* read(const void* from, std::size_t bytes) {
    if (accelerator() != nullptr) return accelerator()->read(from, bytes);
    return static_cast<const std::byte*>(from);
  }
  template <class T>
  const T* read(const Tensor& dense) {
    const auto bytes =
        static_cast<std::size_t>(dense.rows * dense.cols()) * dtype_size(dense.dtype);
    return reinterpret_cast<const T*>(read(dense.data, bytes));
  }
  /// The same into memory of the caller's.
  void read(void* to, const void* from, std::size_t bytes);
  /// Host bytes for ops that follow; they may go when it returns.
  void write(void* to, const void* from, std::size_t bytes);

  // What others sent, and what they are sent. Pinned bytes are copied straight, and so is what
  // another device of the process has.

  /// For what others are sent: of memory that copies reach, not cleared. Throws std::bad_alloc.
  std::shared_ptr<Buffer> host_buffer(std::size_t bytes) const;
  /// For ops that follow. Its bytes must stay as they are; its owner is held until then.
  void write(void* to, const Payload& from);
  /// Where ops find it: its bytes themselves, which must stay, or a copy in `room`.
  const std::byte* reach(const Payload& from, Room& room);
  /// Where ops write what goes into a host_buffer(): there, or in `room`.
  std::byte* target(Buffer& buffer, Room& room);
  /// So much of it, from there, or from anywhere: it is on the host after wait().
  void fetch(const std::shared_ptr<Buffer>& to, const void* from, std::size_t bytes);
  void wait() {
    if (accelerator() != nullptr) accelerator()->wait();
  }

  Accelerator* accelerator() const { return options_.accelerator; }
  /// What the back-end keeps of its device, if that is no accelerator.
  void* device() const { return device_.get(); }

 private:
  Options options_;
  Scratch scratch_;
  std::shared_ptr<void> device_;
};

/// Memory that ops reach, which grows to its largest use and keeps it.
class Stream::Room {
 public:
  std::byte* at_least(const Stream& stream, std::size_t bytes) {
    if (bytes_ < bytes) {
      data_ = nullptr;
      bytes_ = 0;
      data_ = stream.memory(bytes);
      bytes_ = bytes;
    }
    return data();
  }
  std::byte* data() const { return data_.get(); }

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
};

}  // namespace troupe::kernels
