#pragma once

#include <cuda_runtime.h>

#include <bit>
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
  DEVICE bool last_of(std::uint32_t* came, std::uint32_t count) const {
    __threadfence();
    __syncthreads();
    const bool last = thread() == 0 && atomicInc(came, count - 1) == count - 1;
    const bool all = __syncthreads_or(last) != 0;
    __threadfence();
    return all;
  }
  template <class T>
  DEVICE T load_joined(const T* from) const {
    if constexpr (sizeof(T) == sizeof(Quad)) {
      const uint4 q = __ldcg(reinterpret_cast<const uint4*>(from));
      return std::bit_cast<T>(q);
    } else {
      return std::bit_cast<T>(__ldcg(reinterpret_cast<const std::uint32_t*>(from)));
    }
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

/// Shared memory of a multiprocessor, at least. That of sm_100 is as large as that of sm_90, but
/// its code takes more registers than two CTAs leave.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr std::size_t kMultiprocessorBytes = 228u << 10;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 800
inline constexpr std::size_t kMultiprocessorBytes = 164u << 10;
#else
inline constexpr std::size_t kMultiprocessorBytes = 100u << 10;
#endif

/// CTAs that a multiprocessor should have room for, if its shared memory has.
template <class Kernel>
constexpr int resident() {
  if constexpr (requires { Kernel::kResident; }) {
    if (Kernel::kResident * (Kernel::kSharedBytes + 1024) <= kMultiprocessorBytes)
      return Kernel::kResident;
  }
  return 1;
}

/// What a CTA may ask for of shared memory on the GPUs that code is made for. A kernel that asks
/// for more is never launched there, and has no code.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr std::size_t kSharedBytesHere = kMostSharedBytes;
#elif defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ / 100 == 12)
inline constexpr std::size_t kSharedBytesHere = kWideSharedBytesMax;
#else
inline constexpr std::size_t kSharedBytesHere = kLargeSharedBytes;
#endif

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, resident<Kernel>())
    run(const __grid_constant__ Kernel kernel) {
  if (Kernel::kSharedBytes > kSharedBytesHere) {
    __trap();
    return;
  }
  if constexpr (requires { Kernel::kAlignment; }) {
    extern __shared__ __align__(Kernel::kAlignment) Quad aligned_shared[];
    Cta cta(reinterpret_cast<std::byte*>(aligned_shared));
    kernel(cta);
  } else if constexpr (is_wide<Kernel>()) {
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

/// What a CTA of the stream's GPU may ask for.
std::size_t shared_bytes(Stream& stream);

/// Whether the stream's GPU has wgmma, and this program the code for it (sm_90a).
bool has_wgmma(Stream& stream);

template <class Kernel>
void launch(Stream& stream, Grid grid, Kernel kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel> && alignof(Kernel) <= 16);
  static_assert(Kernel::kThreads <= kThreadsMax && Kernel::kSharedBytes <= kMostSharedBytes);
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
