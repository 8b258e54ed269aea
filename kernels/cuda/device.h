#pragma once

/// What kernels are written against. A kernel is a struct: its fields are its arguments, and
///
///     static constexpr int kThreads;              of a CTA
///     static constexpr std::size_t kSharedBytes;
///     static constexpr bool kMeets;               its threads wait for each other, or share memory
///     DEVICE void operator()(Cta& cta) const;     what one thread does
///
/// and launch(stream, grid, kernel) runs it and returns when it has ended. The same source is
/// compiled by nvcc, in the namespace `cuda`, and for the host, in `cuda_twin`.
#ifdef __CUDACC__
#include "kernels/cuda/gpu.h"
#define TROUPE_CUDA_SPACE cuda
#else
#include "kernels/cuda/twin/cta.h"
#include "kernels/cuda/twin/twin.h"
#define TROUPE_CUDA_SPACE cuda_twin
#define DEVICE [[gnu::always_inline]] inline
#endif

#include <algorithm>

namespace troupe::kernels::TROUPE_CUDA_SPACE {

/// A copy of a small array for a launch, in the stream's scratch. Scratch is memory that both sides
/// reach, and no launch runs when this is called.
template <class T>
const T* staged(Stream& stream, const T* from, std::int64_t count) {
  T* to = stream.scratch().take<T>(static_cast<std::size_t>(count));
  std::copy_n(from, count, to);
  return to;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
