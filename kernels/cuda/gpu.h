#pragma once

#include <cuda_runtime.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/stream.h"
#include "kernels/work.h"

/// What a thread of a kernel sees on a GPU; kernels/cuda/twin/cta.h is the host's twin of it.
#define DEVICE __device__ __forceinline__

namespace troupe::kernels::cuda {

struct alignas(16) Quad {
  std::uint32_t words[4];
};

template <class T>
class Shared {
 public:
  DEVICE explicit Shared(std::byte* data) : data_(reinterpret_cast<T*>(data)) {}
  DEVICE T& operator[](std::int64_t i) const { return data_[i]; }

 private:
  T* data_;
};

class Cta {
 public:
  DEVICE explicit Cta(std::byte* shared) : shared_(shared) {}

  DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
  DEVICE int lane() const { return thread() % 32; }
  DEVICE int warp() const { return thread() / 32; }
  DEVICE std::int64_t block_x() const { return blockIdx.x; }
  DEVICE std::int64_t block_y() const { return blockIdx.y; }
  DEVICE void sync() const { __syncthreads(); }
  template <class T>
  DEVICE T shuffle(std::uint32_t mask, T value, int from) const {
    return __shfl_sync(mask, value, from);
  }
  template <class T>
  DEVICE Shared<T> shared(std::size_t at, std::size_t) const {
    return Shared<T>(shared_ + at);
  }
  DEVICE Quad load_quad(const void* from) const {
    const uint4 q = __ldg(static_cast<const uint4*>(from));
    return {{q.x, q.y, q.z, q.w}};
  }

 private:
  std::byte* shared_;
};

extern __shared__ Quad wide_shared[];

/// Whether it asks for more shared memory than there is without asking.
template <class Kernel>
constexpr bool is_wide() {
  return Kernel::kSharedBytes > kSharedBytesMax;
}

/// CTAs that a multiprocessor should have room for.
template <class Kernel>
constexpr int resident() {
  if constexpr (requires { Kernel::kResident; }) return Kernel::kResident;
  return 1;
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, resident<Kernel>())
    run(const __grid_constant__ Kernel kernel) {
  if constexpr (is_wide<Kernel>()) {
    Cta cta(reinterpret_cast<std::byte*>(wide_shared));
    kernel(cta);
  } else {
    __shared__ alignas(16) std::byte shared[Kernel::kSharedBytes > 0 ? Kernel::kSharedBytes : 1];
    Cta cta(shared);
    kernel(cta);
  }
}

/// Into the queue of the stream's accelerator. Without one it waits, and ends the process if
/// something failed, since what is computed after that means nothing.
void launch(Stream& stream, const Work& kernel);

template <class Kernel>
void launch(Stream& stream, Grid grid, Kernel kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel> && alignof(Kernel) <= 16);
  static_assert(Kernel::kThreads <= kThreadsMax && Kernel::kSharedBytes <= kWideSharedBytesMax);
  static_assert(Kernel::kMeets || Kernel::kSharedBytes == 0);
  assert(grid.x <= kGridXMax && grid.y <= kGridYMax);
  if (grid.x == 0 || grid.y == 0) return;
  __builtin_clear_padding(&kernel);  // a graph compares bytes
  Work work;
  work.from = &kernel;
  work.bytes = sizeof kernel;
  work.function = reinterpret_cast<const void*>(&run<Kernel>);
  work.grid = grid;
  work.threads = Kernel::kThreads;
  work.shared_bytes = is_wide<Kernel>() ? Kernel::kSharedBytes : 0;
  work.meets = Kernel::kMeets;
  launch(stream, work);
}

}  // namespace troupe::kernels::cuda
