#pragma once

/// What kernels are written against. A kernel is a struct: its fields are its arguments, and
///
///     static constexpr int kThreads;              of a CTA
///     static constexpr std::size_t kSharedBytes;
///     static constexpr bool kMeets;               its threads wait for each other, or share memory
///     DEVICE void operator()(Cta& cta) const;     what one thread does
///
/// and launch(stream, grid, kernel) puts it into the stream's queue; without an accelerator it has
/// ended when that returns. The same source is compiled by nvcc, in the namespace `cuda`, and for
/// the host, in `cuda_twin`.
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

/// An array that the host fills before the next launch, and does not touch after that.
template <class T>
class Told {
 public:
  Told(Stream& stream, std::int64_t count) {
    const auto values = static_cast<std::size_t>(count);
    if (stream.accelerator() == nullptr) {
      here_ = there_ = stream.scratch().take<T>(values);
    } else {
      const Accelerator::Told told = stream.accelerator()->tell(values * sizeof(T));
      here_ = reinterpret_cast<T*>(told.here);
      there_ = reinterpret_cast<T*>(told.there);
    }
  }

  T* host() const { return here_; }
  const T* device() const { return there_; }

 private:
  T *here_, *there_;
};

/// A copy of a small array for a launch.
template <class T>
const T* staged(Stream& stream, const T* from, std::int64_t count) {
  const Told<T> told(stream, count);
  std::copy_n(from, count, told.host());
  return told.device();
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
