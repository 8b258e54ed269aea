#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/scratch.h"
#include "kernels/tensor.h"
#include "runtime/cpu_family.h"
#include "runtime/numerics.h"
#include "runtime/thread_pool.h"

namespace troupe::kernels {

struct Backend;  // kernels/backend.h

/// Orders work on one device: ops given to a stream run one after the other, and an op has ended
/// when its call returns. On a CPU it is a thread pool. Used by one thread at a time, whose float
/// mode is set (runtime/float_mode.h).
///
///     Stream::Scope scope(stream);                     // what is allocated below goes at its end
///     Tensor x = stream.alloc(rows, hidden);           // [rows, hidden] float32, not cleared
class Stream {
 public:
  struct Options {
    Numerics numerics = Numerics::kReference;
    CpuFamily family = CpuFamily::kBaseline;
    ThreadPool* pool = nullptr;        ///< null: everything runs on the calling thread
    const Fault* fault = nullptr;      ///< for tests of what finds a broken core
    const Backend* backend = nullptr;  ///< null: the CPU's
    std::uint64_t order_seed = 0;      ///< of the CUDA back-end's twin: in which order threads run
  };
  explicit Stream(const Options& options);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Numerics numerics() const { return options_.numerics; }
  CpuFamily family() const { return options_.family; }
  ThreadPool* pool() const { return options_.pool; }
  const Fault* fault() const { return options_.fault; }
  const Backend& backend() const { return *options_.backend; }

  class Scope {
   public:
    explicit Scope(Stream& stream) : scope_(stream.scratch_) {}

   private:
    Scratch::Scope scope_;
  };

  /// Throws std::bad_alloc when memory is short.
  Tensor alloc(std::int64_t rows, std::int64_t dim, DType dtype = DType::kF32) {
    const auto bytes = static_cast<std::size_t>(rows * dim) * dtype_size(dtype);
    return host_tensor(scratch_.take<std::byte>(bytes), dtype, rows, dim);
  }
  /// [rows, heads, dim].
  Tensor alloc_heads(std::int64_t rows, std::int64_t heads, std::int64_t dim) {
    return alloc(rows, heads * dim).split(heads);
  }
  Scratch& scratch() { return scratch_; }
  /// What the back-end keeps of its device.
  void* device() const { return device_.get(); }

 private:
  Options options_;
  Scratch scratch_;
  std::shared_ptr<void> device_;
};

}  // namespace troupe::kernels
